# SPDX-License-Identifier: Apache-2.0
"""Orders, loaders and randomness of samples."""

from typing import TYPE_CHECKING

from truestep.lazy import lazy_names

if TYPE_CHECKING:
    from truestep.engine.data.opening import open_source as open_source
    from truestep.engine.data.options import ByLength as ByLength
    from truestep.engine.data.options import DataOptions as DataOptions
    from truestep.engine.data.randomness import sample_rng as sample_rng
    from truestep.engine.data.source import BatchSource as BatchSource

__getattr__ = lazy_names(
    __name__,
    {
        "BatchSource": "truestep.engine.data.source",
        "ByLength": "truestep.engine.data.options",
        "DataOptions": "truestep.engine.data.options",
        "open_source": "truestep.engine.data.opening",
        "sample_rng": "truestep.engine.data.randomness",
    },
)
