# SPDX-License-Identifier: Apache-2.0
"""The distributions of initial weights that go by a name."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

TRUNCATED_STD = 0.02


@dataclass(frozen=True)
class Fans:
    """How many inputs one output sums, and how many outputs one input feeds."""

    inputs: float
    outputs: float


@dataclass(frozen=True)
class Preset:
    """A distribution: the standard deviation for some fans and a gain, and how a tensor is filled with it."""

    std: Callable[[Fans, float], float]
    fill: Callable[[Tensor, float, torch.Generator | None], object]
    uses_gain: bool = True
    embedding_std: float = 1.0  # a row that is looked up is a product with a one-hot vector: one input


def _normal(value: Tensor, std: float, generator: torch.Generator | None) -> None:
    value.normal_(0.0, std, generator=generator)


def _uniform(value: Tensor, std: float, generator: torch.Generator | None) -> None:
    bound = math.sqrt(3.0) * std
    value.uniform_(-bound, bound, generator=generator)


def _truncated(value: Tensor, std: float, generator: torch.Generator | None) -> None:
    nn.init.trunc_normal_(value, 0.0, std, -2 * std, 2 * std, generator=generator)


def _zeros(value: Tensor, _std: float, _generator: torch.Generator | None) -> None:
    value.zero_()


def _kaiming_std(fans: Fans, gain: float) -> float:
    return gain / math.sqrt(fans.inputs or 1)  # without inputs there is no weight


def _xavier_std(fans: Fans, gain: float) -> float:
    return gain * math.sqrt(2.0 / (fans.inputs + fans.outputs or 1))


PRESETS: dict[str, Preset] = {
    "kaiming": Preset(_kaiming_std, _normal),
    "kaiming_uniform": Preset(_kaiming_std, _uniform),
    "xavier": Preset(_xavier_std, _normal),
    "xavier_uniform": Preset(_xavier_std, _uniform),
    "lecun": Preset(lambda fans, _gain: _kaiming_std(fans, 1.0), _normal, uses_gain=False),
    "orthogonal": Preset(lambda _fans, gain: gain, nn.init.orthogonal_),
    "truncated_normal": Preset(
        lambda _fans, _gain: TRUNCATED_STD, _truncated, uses_gain=False, embedding_std=TRUNCATED_STD
    ),
    "zeros": Preset(lambda _fans, _gain: 0.0, _zeros, uses_gain=False, embedding_std=0.0),
}
