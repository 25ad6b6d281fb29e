# SPDX-License-Identifier: Apache-2.0
"""What is kept of a run, how it is committed to disk, and how it comes back."""

from truestep.core.lazy_imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
