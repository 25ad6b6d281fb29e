# SPDX-License-Identifier: Apache-2.0
"""Exact resume inside Lightning, Hugging Face's Trainer and Accelerate; none of them is imported until its name is used."""

from truestep.core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
