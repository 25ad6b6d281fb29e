# SPDX-License-Identifier: Apache-2.0
from truestep.frameworks.accelerate.exact import ExactResume as ExactResume
