# SPDX-License-Identifier: Apache-2.0
"""Orders, loaders and randomness of samples."""

from truestep.engine.data.opening import open_source
from truestep.engine.data.options import ByLength, DataOptions
from truestep.engine.data.randomness import sample_rng
from truestep.engine.data.source import BatchSource

__all__ = ["BatchSource", "ByLength", "DataOptions", "open_source", "sample_rng"]
