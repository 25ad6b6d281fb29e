# SPDX-License-Identifier: Apache-2.0
"""Orders, loaders and randomness of samples."""

from truestep.core.lazy_imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
