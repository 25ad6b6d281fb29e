# SPDX-License-Identifier: Apache-2.0
"""`ts.lightning`, by the name under which it is imported: `from truestep.lightning import ExactResume`."""

import sys

from truestep.frameworks import lightning

sys.modules[__name__] = lightning
