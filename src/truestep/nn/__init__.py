# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces on top of torch, each usable alone in a plain loop: `ts.nn.NAME`.

Names are imported when they are first asked for, so that one piece never pays for another.
"""

from truestep.lazy import lazy_names

_WHERE: dict[str, str] = {
    "ActivationSwap": "truestep.nn.swapping.swap",
    "activation_gain": "truestep.nn.activations",
    "add_spectral_norm": "truestep.nn.norms.add",
    "add_weight_norm": "truestep.nn.norms.add",
    "batch_norm_momentum": "truestep.nn.batch_norm.momentum",
    "check_self_normalizing": "truestep.nn.self_normalization.check",
    "convert_dropout": "truestep.nn.dropout.convert",
    "convert_norm_keys": "truestep.nn.norms.keys",
    "DropoutConversion": "truestep.nn.dropout.convert",
    "exact_batch_norm": "truestep.nn.batch_norm.exact",
    "ExactBatchNorm": "truestep.nn.batch_norm.report",
    "initialize": "truestep.nn.initialization.initialize",
    "Initialization": "truestep.nn.initialization.report",
    "MomentumChange": "truestep.nn.batch_norm.momentum",
    "NormChange": "truestep.nn.norms.change",
    "remove_spectral_norm": "truestep.nn.norms.remove",
    "remove_weight_norm": "truestep.nn.norms.remove",
    "self_normalizing": "truestep.nn.self_normalization.apply",
    "SelfNormalizing": "truestep.nn.self_normalization.apply",
    "SelfNormalizingCheck": "truestep.nn.self_normalization.check",
    "swap_activation": "truestep.nn.swapping.swap",
    "VanillaDropout": "truestep.nn.dropout.vanilla",
}

__all__ = [
    "ActivationSwap",
    "DropoutConversion",
    "ExactBatchNorm",
    "Initialization",
    "MomentumChange",
    "NormChange",
    "SelfNormalizing",
    "SelfNormalizingCheck",
    "VanillaDropout",
    "activation_gain",
    "add_spectral_norm",
    "add_weight_norm",
    "batch_norm_momentum",
    "check_self_normalizing",
    "convert_dropout",
    "convert_norm_keys",
    "exact_batch_norm",
    "initialize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "self_normalizing",
    "swap_activation",
]

__getattr__ = lazy_names(__name__, _WHERE)
