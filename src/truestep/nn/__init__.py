# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces on top of torch, each usable alone in a plain loop: `ts.nn.NAME`.

Names are imported when they are first asked for, so that one piece never pays for another.
"""

from truestep.lazy import lazy_names

_WHERE: dict[str, str] = {
    "adaptive_bins": "truestep.nn.adaptive",
    "AdaptiveBins": "truestep.nn.adaptive",
    "Checkerboard": "truestep.nn.checkerboard",
    "checkerboard": "truestep.nn.checkerboard",
    "find_windows": "truestep.nn.sizes",
    "input_sizes": "truestep.nn.sizes",
    "layer_windows": "truestep.nn.sizes",
    "Named": "truestep.nn.named",
    "output_size": "truestep.nn.sizes",
    "Standardizer": "truestep.nn.standardizer",
    "Upsample": "truestep.nn.upsample",
    "Window": "truestep.nn.windows",
}

__all__ = [  # noqa: RUF022  (alphabetical, whatever the case)
    "adaptive_bins",
    "AdaptiveBins",
    "Checkerboard",
    "checkerboard",
    "find_windows",
    "input_sizes",
    "layer_windows",
    "Named",
    "output_size",
    "Standardizer",
    "Upsample",
    "Window",
]

__getattr__ = lazy_names(__name__, _WHERE)
