# SPDX-License-Identifier: Apache-2.0
"""Names of axes: how they are written, found and matched, and the functions of torch through which they are kept."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Names = tuple[str, ...]

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


def split_axis_names(names: str | Iterable[str]) -> Names:
    """Return the names in "N C H W" or ("N", "C", "H", "W"); each a Python identifier, none twice."""
    found = tuple(names.split()) if isinstance(names, str) else check_axis_names(names)
    for name in found:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(
                f"{name!r} is no name for an axis. Names are Python identifiers, written as one text with spaces: 'N C H W'."
            )
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(
            f"The names {' '.join(found)} have {', '.join(twice)} more than once, so it would not say which axis is meant. "
            "Give each axis its own name."
        )
    return found


def check_axis_names(names: Iterable[str]) -> Names:
    """Return names that are given one by one, in their order."""
    if isinstance(names, set | frozenset) or not isinstance(names, Iterable):
        why = "a set has no order" if isinstance(names, set | frozenset) else f"got {names!r}"
        raise ValueError(f"Names stand in the order of the axes, as one text with spaces, 'N C H W': {why}.")
    return tuple(names)


def parse_axis_names(names: tuple[Any, ...]) -> list[str]:
    """Return names that are given as one text, as one list, or one by one; `...` is written as text."""
    given = names[0] if len(names) == 1 and names[0] is not ... else names
    if not names:
        raise ValueError("Give the axes in their order, as one text with spaces: 'N C H W'.")
    found: Sequence[Any] = given.split() if isinstance(given, str) else check_axis_names(given)
    return ["..." if name is ... else name for name in found]


def axes_text(sizes: Mapping[str, int]) -> str:
    """Return names and sizes as messages show them: (N=8, C=3)."""
    return "(" + ", ".join(f"{name}={size}" for name, size in sizes.items()) + ")"


def find_axes(names: str | Iterable[str], sizes: Mapping[str, int]) -> list[int]:
    """Return the positions of `names` among those of `sizes`."""
    order = list(sizes)
    wanted = split_axis_names(names)
    missing = [name for name in wanted if name not in sizes]
    if missing:
        raise ValueError(f"There is no axis {', '.join(missing)} in {axes_text(sizes)}.")
    return [order.index(name) for name in wanted]


def check_axes_match(every: Sequence[Mapping[str, int]]) -> None:
    """Raise a ValueError where two operands have a name in common and not its size; sizes of 1 count as any other."""
    for one, other in combinations(every, 2):
        differing = [name for name, size in other.items() if one.get(name, size) != size]
        if differing:
            sizes = " and ".join(f"{name} is {one[name]} and {other[name]}" for name in differing)
            raise ValueError(
                f"{axes_text(one)} and {axes_text(other)} do not match: {sizes}. Axes of one name have one size. Rename one of "
                "them if it is another axis; select(name, 0) drops an axis of size 1."
            )


def union_of_axis_names(every: Sequence[Mapping[str, int]]) -> Names:
    """Return all names: those of the operand with most axes, then what the others add, in their order."""
    longest = max(every, key=len)
    return tuple(dict.fromkeys([*longest, *(name for one in every for name in one)]))
