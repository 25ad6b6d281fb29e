# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces on top of torch, each usable alone in a plain loop: `ts.nn.NAME`.

Names are imported when they are first asked for, so that one piece never pays for another.
"""

from truestep.lazy import lazy_names

_WHERE: dict[str, str] = {
    "Standardizer": "truestep.nn.standardizer",
}

__all__ = [
    "Standardizer",
]

__getattr__ = lazy_names(__name__, _WHERE)
