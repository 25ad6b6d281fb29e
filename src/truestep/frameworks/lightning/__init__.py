# SPDX-License-Identifier: Apache-2.0
"""Exact resume of a training by Lightning: `ts.lightning.ExactResume`."""

from truestep.core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__, called="ts.lightning")
