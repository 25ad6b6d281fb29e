# SPDX-License-Identifier: Apache-2.0
"""The distributions that go by a name; which rule is for which tensor: names before kinds, the later and the nearer first."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from truestep.core.errors import OptionError, nearest_names
from truestep.nn.initialization.slots import Fans, InitSlot
from truestep.nn.layers import layer_names_like, layer_selectors

TRUNCATED_STD = 0.02


@dataclass(frozen=True)
class InitPreset:
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


def _kaiming_std(fans: Fans, gain: float) -> float:
    return gain / math.sqrt(fans.inputs or 1)  # without inputs there is no weight


def _xavier_std(fans: Fans, gain: float) -> float:
    return gain * math.sqrt(2.0 / (fans.inputs + fans.outputs or 1))


PRESETS: dict[str, InitPreset] = {
    "kaiming": InitPreset(_kaiming_std, _normal),
    "kaiming_uniform": InitPreset(_kaiming_std, _uniform),
    "xavier": InitPreset(_xavier_std, _normal),
    "xavier_uniform": InitPreset(_xavier_std, _uniform),
    "lecun": InitPreset(lambda fans, _gain: _kaiming_std(fans, 1.0), _normal, uses_gain=False),
    "orthogonal": InitPreset(lambda _fans, gain: gain, nn.init.orthogonal_),
    "truncated_normal": InitPreset(
        lambda _fans, _gain: TRUNCATED_STD, _truncated, uses_gain=False, embedding_std=TRUNCATED_STD
    ),
    "zeros": InitPreset(lambda _fans, _gain: 0.0, _normal, uses_gain=False),
}

_TENSOR = re.compile(r"(weight|bias)(_(ih|hh|hr)(_l(\d+|\*).*)?)?|in_proj_(weight|bias)|[qkv]_proj_weight")

Rule = str | Callable[[Tensor], Any]
Rules = Mapping[type[nn.Module] | str, Rule]


@dataclass(frozen=True)
class InitRule:
    """A rule for a tensor, and how near it came: by kind (1), by its layer's name (2), by its own name (3)."""

    rule: Rule
    nearness: int

    @property
    def name(self) -> str:
        """How reports call it."""
        return self.rule if isinstance(self.rule, str) else getattr(self.rule, "__name__", repr(self.rule))


def check_init_rules(rules: Rule | Rules, model: nn.Module, slots: list[InitSlot]) -> Rules:
    """Return rules by kind and name; raise an OptionError for one that is unknown or matches nothing."""
    if not isinstance(rules, Mapping):
        rules = {nn.Module: rules}
    for rule in rules.values():
        if isinstance(rule, str) and rule not in PRESETS:
            raise OptionError(f"No initialisation is called {rule!r}. {nearest_names(rule, PRESETS)}")
        if not isinstance(rule, str) and (isinstance(rule, type) or not callable(rule)):
            raise OptionError(f"A rule is a name or a function of a tensor (nn.init.dirac_); got {rule!r}.")
    of_tensors = [each for each in rules if isinstance(each, str) and _is_tensors(each)]
    for pattern in of_tensors:
        layer_names_like(pattern, [slot.name for slot in slots], "tensor that can be initialised")
    if not rules:
        layer_selectors([], model)
    for selector in rules:  # a rule that nothing follows would be ignored in silence
        if selector not in of_tensors:
            layer_selectors([selector], model)
    return rules


def _is_tensors(pattern: str) -> bool:
    """Tell whether a pattern names tensors rather than layers: its last part is a tensor's name, not a wildcard."""
    return _TENSOR.fullmatch(pattern.rpartition(".")[2]) is not None


def init_rule_for(rules: Rules, slot: InitSlot) -> InitRule | None:
    """Return the rule for a tensor, or None."""
    by_name = [(pattern, rule) for pattern, rule in rules.items() if isinstance(pattern, str)]
    for pattern, rule in reversed(by_name):
        if _is_tensors(pattern) and fnmatchcase(slot.name, pattern):
            return InitRule(rule, 3)
    for pattern, rule in reversed(by_name):
        if not _is_tensors(pattern) and fnmatchcase(slot.layer, pattern):
            return InitRule(rule, 2)
    for kind in type_before_parametrizations(slot.module).__mro__:
        if kind in rules:
            return InitRule(rules[kind], 1)
    return None
