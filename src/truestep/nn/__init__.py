# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces on top of torch, each usable alone in a plain loop: `ts.nn.NAME`.

Names are imported when they are first asked for, so that one piece never pays for another.
"""

from truestep.core.lazy_imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__, called="ts.nn")
