# SPDX-License-Identifier: Apache-2.0
from truestep.frameworks.lightning.exact import ExactResume as ExactResume
