# SPDX-License-Identifier: Apache-2.0
"""Which of torch's functions work element by element, so that names can be kept and matched."""

import torch
import torch.nn.functional as F
from torch import Tensor

_OF_ONE = """
    abs absolute neg negative positive sign sgn signbit exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square reciprocal
    sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid logit erf erfc erfinv lgamma digamma sinc
    floor ceil round trunc frac isnan isinf isfinite logical_not bitwise_not nan_to_num clamp clip clamp_min clamp_max
    relu relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardswish hardsigmoid softplus softsign tanhshrink softshrink
    hardshrink logsigmoid threshold dropout zeros_like ones_like full_like empty_like rand_like randn_like
"""
_OF_SEVERAL = """
    add sub subtract rsub mul multiply div divide true_divide floor_divide remainder fmod pow float_power maximum minimum
    fmax fmin atan2 arctan2 hypot copysign nextafter xlogy logaddexp logaddexp2 lerp where eq ne lt le gt ge
    not_equal less less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor isclose
    __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __div__ __rdiv__ __pow__ __rpow__ __floordiv__
    __rfloordiv__ __mod__ __rmod__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __xor__
"""

POINTWISE = frozenset(
    getattr(home, name)
    for name in (_OF_ONE + _OF_SEVERAL).split()
    for home in (torch, F, Tensor)
    if hasattr(home, name)
)
