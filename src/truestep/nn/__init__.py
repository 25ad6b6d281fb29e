# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces on top of torch, each usable alone in a plain loop: `ts.nn.NAME`.

Names are imported when they are first asked for, so that one piece never pays for another.
"""

from truestep.lazy import lazy_names

_WHERE: dict[str, str] = {
    "Captured": "truestep.nn.capturing",
    "CapturedLayer": "truestep.nn.capturing",
    "Freezing": "truestep.nn.freezing",
}

__all__: list[str] = ["Captured", "CapturedLayer", "Freezing"]

__getattr__ = lazy_names(__name__, _WHERE)
