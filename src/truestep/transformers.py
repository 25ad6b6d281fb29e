# SPDX-License-Identifier: Apache-2.0
"""`ts.transformers`, by the name under which it is imported: `from truestep.transformers import ExactResume`."""

import sys

from truestep.frameworks import transformers

sys.modules[__name__] = transformers
