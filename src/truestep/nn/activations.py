# SPDX-License-Identifier: Apache-2.0
"""Activations that act on each number alone, and the gain that undoes what they do to its size."""

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from truestep.core.errors import OptionError

Activation = nn.Module | Callable[[Tensor], Tensor]

_ELEMENTWISE = """
    ReLU ReLU6 LeakyReLU PReLU RReLU ELU CELU SELU GELU SiLU Mish Tanh Sigmoid LogSigmoid Softplus Softsign Hardswish Hardsigmoid
    Hardtanh Tanhshrink Softshrink Hardshrink Threshold
"""
ELEMENTWISE = tuple(getattr(nn, name) for name in _ELEMENTWISE.split())
# The integral over a standard normal: ±12 holds all of it that float64 can see, and the step is far below any kink's effect.
_HALF_WIDTH, _NUM_POINTS = 12.0, 200_001


def activation_gain(activation: Activation) -> float:
    """Return 1/√E[f(z)²] for a standard normal z: with this gain the size of what is passed on stays the same.

    √2 for ReLU (He et al. 2015), 1 for SELU (Klambauer et al. 2017), 1.53 for GELU, 1.59 for tanh; torch's
    `nn.init.calculate_gain` has rounded or folklore values for some (5/3 for tanh, 3/4 for SELU) and none for GELU.

    Args:
        activation: `nn.GELU()`, `F.gelu` or any function that acts on each number alone.

    Raises:
        OptionError: a class instead of an instance; a function that changes shapes, or gives zeros or NaN everywhere.
    """
    if isinstance(activation, type) or not callable(activation):
        raise OptionError(f"Activations are instances or functions (nn.ReLU(), F.relu), got {activation!r}.")
    points = torch.linspace(-_HALF_WIDTH, _HALF_WIDTH, _NUM_POINTS, dtype=torch.float64)
    density = torch.exp(-points.square() / 2) / math.sqrt(2 * math.pi)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        values = _apply_in_float64(activation, points)
        half = _apply_in_float64(activation, points[: _NUM_POINTS // 2])
    if not torch.allclose(values[: _NUM_POINTS // 2], half, equal_nan=True):
        raise OptionError(f"{activation!r} looks at several numbers at once; a gain is of one alone.")
    second = float(torch.trapezoid(values.square() * density, points))
    if not (0 < second < math.inf):
        raise OptionError(f"{activation!r} has no gain: its mean square over normal numbers is {second}.")
    return 1 / math.sqrt(second)


def _apply_in_float64(activation: Activation, points: Tensor) -> Tensor:
    if isinstance(activation, nn.Module):
        activation = copy.deepcopy(activation).to("cpu", torch.float64).eval()
    if isinstance(activation, nn.PReLU):  # one slope a channel
        values = activation(points.unsqueeze(1).repeat(1, activation.num_parameters))
        return torch.as_tensor(values.square().mean(1).sqrt())
    try:
        values = activation(points.clone())  # some act in place
    except (RuntimeError, IndexError) as error:
        raise OptionError(f"{activation!r} can't be applied to a vector of numbers: {error}") from error
    if not isinstance(values, Tensor) or values.shape != points.shape:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise OptionError(
            f"{activation!r} gives {shape} for {tuple(points.shape)}: a gain is defined where each number is changed alone."
        )
    return values
