# SPDX-License-Identifier: Apache-2.0
"""Which rule is for which tensor: names before kinds, later names before earlier ones, the nearest kind."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from truestep.core.errors import OptionError, nearest
from truestep.nn.initialization.presets import PRESETS
from truestep.nn.initialization.slots import Slot
from truestep.nn.layers import select, selectors

_TENSOR = re.compile(r"(weight|bias)(_(ih|hh|hr)(_l(\d+|\*).*)?)?|in_proj_(weight|bias)|[qkv]_proj_weight")

Rule = str | Callable[[Tensor], Any]
Rules = Mapping[type[nn.Module] | str, Rule]


@dataclass(frozen=True)
class Chosen:
    """A rule for a tensor, and how near it came: by kind (1), by its layer's name (2), by its own name (3)."""

    rule: Rule
    nearness: int

    @property
    def name(self) -> str:
        """How reports call it."""
        return self.rule if isinstance(self.rule, str) else getattr(self.rule, "__name__", repr(self.rule))


def checked(rules: Rule | Rules, model: nn.Module, slots: list[Slot]) -> Rules:
    """Return rules by kind and name; raise an OptionError for one that is unknown or matches nothing."""
    if not isinstance(rules, Mapping):
        rules = {nn.Module: rules}
    for rule in rules.values():
        if isinstance(rule, str) and rule not in PRESETS:
            raise OptionError(f"No initialisation is called {rule!r}. {nearest(rule, PRESETS)}")
        if not isinstance(rule, str) and (isinstance(rule, type) or not callable(rule)):
            raise OptionError(
                f"A rule is a name or a function of a tensor, such as nn.init.dirac_; got {rule!r}."
            )
    of_tensors = [each for each in rules if isinstance(each, str) and _is_tensors(each)]
    for pattern in of_tensors:
        select(pattern, [slot.name for slot in slots], "tensor that can be initialised")
    if len(of_tensors) < len(rules) or not rules:
        selectors([each for each in rules if each not in of_tensors], model)
    return rules


def _is_tensors(pattern: str) -> bool:
    """Tell whether a pattern names tensors rather than layers: its last part is a tensor's name, not a wildcard."""
    return _TENSOR.fullmatch(pattern.rpartition(".")[2]) is not None


def choose(rules: Rules, slot: Slot) -> Chosen | None:
    """Return the rule for a tensor, or None."""
    by_name = [(pattern, rule) for pattern, rule in rules.items() if isinstance(pattern, str)]
    for pattern, rule in reversed(by_name):
        if _is_tensors(pattern) and fnmatchcase(slot.name, pattern):
            return Chosen(rule, 3)
    for pattern, rule in reversed(by_name):
        if not _is_tensors(pattern) and fnmatchcase(slot.layer, pattern):
            return Chosen(rule, 2)
    for kind in type_before_parametrizations(slot.module).__mro__:
        if kind in rules:
            return Chosen(rules[kind], 1)
    return None
