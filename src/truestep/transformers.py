# SPDX-License-Identifier: Apache-2.0
"""`ts.transformers.ExactResume`: exact resume of a training by Hugging Face's Trainer, which is imported when it is asked for."""

from truestep.core.lazy_imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__, called="ts.transformers")
