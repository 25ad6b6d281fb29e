# SPDX-License-Identifier: Apache-2.0
from truestep.frameworks.accelerate import ExactResume as ExactResume
