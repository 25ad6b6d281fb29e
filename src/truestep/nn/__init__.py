# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces on top of torch, each usable alone in a plain loop: `ts.nn.NAME`.

Names are imported when they are first asked for, so that one piece never pays for another.
"""

from typing import TYPE_CHECKING

from truestep.lazy import lazy_names

if TYPE_CHECKING:
    from truestep.nn.activations import activation_gain as activation_gain
    from truestep.nn.arrays import Rounding as Rounding
    from truestep.nn.batch_norm.exact import exact_batch_norm as exact_batch_norm
    from truestep.nn.batch_norm.momentum import MomentumChange as MomentumChange
    from truestep.nn.batch_norm.momentum import batch_norm_momentum as batch_norm_momentum
    from truestep.nn.batch_norm.report import ExactBatchNorm as ExactBatchNorm
    from truestep.nn.capturing import Captured as Captured
    from truestep.nn.capturing import CapturedLayer as CapturedLayer
    from truestep.nn.dropout.convert import DropoutConversion as DropoutConversion
    from truestep.nn.dropout.convert import convert_dropout as convert_dropout
    from truestep.nn.dropout.vanilla import VanillaDropout as VanillaDropout
    from truestep.nn.freezing import Freezing as Freezing
    from truestep.nn.initialization.initialize import initialize as initialize
    from truestep.nn.initialization.report import Initialization as Initialization
    from truestep.nn.named_axes.tensor import Named as Named
    from truestep.nn.norms.add import add_spectral_norm as add_spectral_norm
    from truestep.nn.norms.add import add_weight_norm as add_weight_norm
    from truestep.nn.norms.change import NormChange as NormChange
    from truestep.nn.norms.keys import convert_norm_keys as convert_norm_keys
    from truestep.nn.norms.remove import remove_spectral_norm as remove_spectral_norm
    from truestep.nn.norms.remove import remove_weight_norm as remove_weight_norm
    from truestep.nn.seeds import Seeded as Seeded
    from truestep.nn.self_normalization.apply import SelfNormalizing as SelfNormalizing
    from truestep.nn.self_normalization.apply import self_normalizing as self_normalizing
    from truestep.nn.self_normalization.check import SelfNormalizingCheck as SelfNormalizingCheck
    from truestep.nn.self_normalization.check import check_self_normalizing as check_self_normalizing
    from truestep.nn.sizes.adaptive import AdaptiveBins as AdaptiveBins
    from truestep.nn.sizes.adaptive import adaptive_bins as adaptive_bins
    from truestep.nn.sizes.output import find_windows as find_windows
    from truestep.nn.sizes.output import input_sizes as input_sizes
    from truestep.nn.sizes.output import layer_windows as layer_windows
    from truestep.nn.sizes.output import output_size as output_size
    from truestep.nn.sizes.windows import Window as Window
    from truestep.nn.standardizer import Standardizer as Standardizer
    from truestep.nn.swapping.swap import ActivationSwap as ActivationSwap
    from truestep.nn.swapping.swap import swap_activation as swap_activation
    from truestep.nn.unevenness import Checkerboard as Checkerboard
    from truestep.nn.unevenness import checkerboard as checkerboard
    from truestep.nn.upsample import Upsample as Upsample

_WHERE: dict[str, str] = {
    "activation_gain": "truestep.nn.activations",
    "ActivationSwap": "truestep.nn.swapping.swap",
    "adaptive_bins": "truestep.nn.sizes.adaptive",
    "AdaptiveBins": "truestep.nn.sizes.adaptive",
    "add_spectral_norm": "truestep.nn.norms.add",
    "add_weight_norm": "truestep.nn.norms.add",
    "batch_norm_momentum": "truestep.nn.batch_norm.momentum",
    "Captured": "truestep.nn.capturing",
    "CapturedLayer": "truestep.nn.capturing",
    "check_self_normalizing": "truestep.nn.self_normalization.check",
    "Checkerboard": "truestep.nn.unevenness",
    "checkerboard": "truestep.nn.unevenness",
    "convert_dropout": "truestep.nn.dropout.convert",
    "convert_norm_keys": "truestep.nn.norms.keys",
    "DropoutConversion": "truestep.nn.dropout.convert",
    "exact_batch_norm": "truestep.nn.batch_norm.exact",
    "ExactBatchNorm": "truestep.nn.batch_norm.report",
    "find_windows": "truestep.nn.sizes.output",
    "Freezing": "truestep.nn.freezing",
    "Initialization": "truestep.nn.initialization.report",
    "initialize": "truestep.nn.initialization.initialize",
    "input_sizes": "truestep.nn.sizes.output",
    "layer_windows": "truestep.nn.sizes.output",
    "MomentumChange": "truestep.nn.batch_norm.momentum",
    "Named": "truestep.nn.named_axes.tensor",
    "NormChange": "truestep.nn.norms.change",
    "output_size": "truestep.nn.sizes.output",
    "remove_spectral_norm": "truestep.nn.norms.remove",
    "remove_weight_norm": "truestep.nn.norms.remove",
    "Rounding": "truestep.nn.arrays",
    "Seeded": "truestep.nn.seeds",
    "self_normalizing": "truestep.nn.self_normalization.apply",
    "SelfNormalizing": "truestep.nn.self_normalization.apply",
    "SelfNormalizingCheck": "truestep.nn.self_normalization.check",
    "Standardizer": "truestep.nn.standardizer",
    "swap_activation": "truestep.nn.swapping.swap",
    "Upsample": "truestep.nn.upsample",
    "VanillaDropout": "truestep.nn.dropout.vanilla",
    "Window": "truestep.nn.sizes.windows",
}

__all__ = [  # noqa: RUF022  (alphabetical, whatever the case)
    "activation_gain",
    "ActivationSwap",
    "adaptive_bins",
    "AdaptiveBins",
    "add_spectral_norm",
    "add_weight_norm",
    "batch_norm_momentum",
    "Captured",
    "CapturedLayer",
    "check_self_normalizing",
    "Checkerboard",
    "checkerboard",
    "convert_dropout",
    "convert_norm_keys",
    "DropoutConversion",
    "exact_batch_norm",
    "ExactBatchNorm",
    "find_windows",
    "Freezing",
    "Initialization",
    "initialize",
    "input_sizes",
    "layer_windows",
    "MomentumChange",
    "Named",
    "NormChange",
    "output_size",
    "remove_spectral_norm",
    "remove_weight_norm",
    "Rounding",
    "Seeded",
    "self_normalizing",
    "SelfNormalizing",
    "SelfNormalizingCheck",
    "Standardizer",
    "swap_activation",
    "Upsample",
    "VanillaDropout",
    "Window",
]

__getattr__ = lazy_names(__name__, _WHERE)
