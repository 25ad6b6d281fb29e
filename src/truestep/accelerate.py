# SPDX-License-Identifier: Apache-2.0
"""`ts.accelerate`, by the name under which it is imported: `from truestep.accelerate import ExactResume`."""

import sys

from truestep.frameworks import accelerate

sys.modules[__name__] = accelerate
