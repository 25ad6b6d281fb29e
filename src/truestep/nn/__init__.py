# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces on top of torch, each usable alone in a plain loop: `ts.nn.NAME`.

Names are imported when they are first asked for, so that one piece never pays for another.
"""

from truestep.lazy import lazy_names

_WHERE: dict[str, str] = {
    "add_spectral_norm": "truestep.nn.norms.add",
    "add_weight_norm": "truestep.nn.norms.add",
    "convert_norm_keys": "truestep.nn.norms.keys",
    "NormChange": "truestep.nn.norms.change",
    "remove_spectral_norm": "truestep.nn.norms.remove",
    "remove_weight_norm": "truestep.nn.norms.remove",
}

__all__ = [
    "NormChange",
    "add_spectral_norm",
    "add_weight_norm",
    "convert_norm_keys",
    "remove_spectral_norm",
    "remove_weight_norm",
]

__getattr__ = lazy_names(__name__, _WHERE)
