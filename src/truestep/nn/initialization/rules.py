# SPDX-License-Identifier: Apache-2.0
"""The distributions that go by a name; which rule is for which tensor: names before kinds, the later and the nearer first."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from truestep.core.errors import OptionError, names_hint
from truestep.core.module_inspection import NORMS, restoring_module
from truestep.nn.layer_lookup import LayerTensor, layer_selectors, match_layer_names

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_PRODUCTS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True)
class Fans:
    """How many inputs one output sums, and how many outputs one input feeds."""

    inputs: float
    outputs: float


@dataclass(frozen=True)
class InitSlot(LayerTensor):
    """One tensor of one layer: a weight, a recurrent or an embedding one, a scale around 1, or a bias."""

    role: str
    chunks: int = 1  # matrices that stand below one another: gates, or query, key and value

    @property
    def held(self) -> nn.Module | Tensor:
        """What is the same where two layers share this tensor: the parameter, or what computes it."""
        if self.is_parametrized:
            return self.parametrization
        parameter = self.module._parameters[self.tensor]
        assert parameter is not None
        return parameter

    @property
    def is_bias(self) -> bool:
        """Tell whether it is added rather than multiplied with."""
        return self.role in {"bias", "forget bias"}

    @property
    def is_frozen(self) -> bool:
        """Tell whether nothing of it is trained."""
        held = self.held
        parts = list(held.parameters()) if isinstance(held, nn.Module) else [held]
        return not any(part.requires_grad for part in parts)

    @property
    def value(self) -> Tensor:
        """The tensor as it is used in evaluation mode."""
        held = self.held
        if isinstance(held, Tensor):
            return held.detach()
        with restoring_module(held):
            value: Tensor = held.eval()()
        return value

    def fans(self) -> Fans:
        """Return how many inputs an output of one of its chunks sums, and how many outputs an input feeds.

        Groups and strides count: a strided convolution's input feeds fewer outputs, a transposed one's output sums fewer
        inputs. `nn.init` reads both from the shape alone, and takes a transposed convolution's fans the wrong way round.
        """
        layer, shape = self.module, self.value.shape
        if isinstance(layer, nn.modules.conv._ConvNd):
            taps = math.prod(layer.kernel_size) / layer.groups
            strides = math.prod(layer.stride)
            inputs, outputs = layer.in_channels * taps, layer.out_channels * taps
            return Fans(inputs / strides, outputs) if layer.transposed else Fans(inputs, outputs / strides)
        return Fans(math.prod(shape[1:]), shape[0] / self.chunks)


def init_slots(model: nn.Module) -> Iterator[InitSlot]:
    """Yield the tensors of layers whose kind is known, in the model's order."""
    for layer, module in model.named_modules():
        for tensor, role, chunks in _initializable_tensors(module):
            slot = InitSlot(layer, module, tensor, role, chunks)
            if slot.is_parametrized or module._parameters.get(tensor) is not None:
                yield slot


def _initializable_tensors(module: nn.Module) -> Iterator[tuple[str, str, int]]:
    if isinstance(module, _PRODUCTS):
        yield from (("weight", "weight", 1), ("bias", "bias", 1))
    elif isinstance(module, _EMBEDDINGS):
        yield "weight", "embedding", 1
    elif isinstance(module, NORMS):
        yield from (("weight", "scale", 1), ("bias", "bias", 1))
    elif isinstance(module, nn.MultiheadAttention):
        yield from (("in_proj_weight", "weight", 3), ("in_proj_bias", "bias", 1))
        yield from ((f"{part}_proj_weight", "weight", 1) for part in "qkv")
    elif isinstance(module, _RECURRENT):
        yield from _recurrent_tensors(module)


def _recurrent_tensors(module: nn.Module) -> Iterator[tuple[str, str, int]]:
    is_lstm = isinstance(module, nn.LSTM | nn.LSTMCell)
    gates = 4 if is_lstm else 3 if isinstance(module, nn.GRU | nn.GRUCell) else 1
    names = (("weight_ih", "weight_hh", "bias_ih", "bias_hh"),)
    for name in chain.from_iterable(getattr(module, "_all_weights", names)):
        if name.startswith("bias"):
            yield name, "forget bias" if is_lstm and name.startswith("bias_ih") else "bias", 1
        elif name.startswith("weight_hr"):
            yield name, "weight", 1
        else:
            yield name, "recurrent" if name.startswith("weight_hh") else "weight", gates


TRUNCATED_STD = 0.02


@dataclass(frozen=True)
class InitPreset:
    """A distribution: the standard deviation for some fans and a gain, and how a tensor is filled with it."""

    std: Callable[[Fans, float], float]
    fill: Callable[[Tensor, float, torch.Generator | None], object]
    uses_gain: bool = True
    embedding_std: float = 1.0  # a row that is looked up is a product with a one-hot vector: one input


def _fill_normal(value: Tensor, std: float, generator: torch.Generator | None) -> None:
    value.normal_(0.0, std, generator=generator)


def _fill_uniform(value: Tensor, std: float, generator: torch.Generator | None) -> None:
    bound = math.sqrt(3.0) * std
    value.uniform_(-bound, bound, generator=generator)


def _fill_truncated_normal(value: Tensor, std: float, generator: torch.Generator | None) -> None:
    nn.init.trunc_normal_(value, 0.0, std, -2 * std, 2 * std, generator=generator)


def _kaiming_std(fans: Fans, gain: float) -> float:
    return gain / math.sqrt(fans.inputs or 1)  # without inputs there is no weight


def _xavier_std(fans: Fans, gain: float) -> float:
    return gain * math.sqrt(2.0 / (fans.inputs + fans.outputs or 1))


PRESETS: dict[str, InitPreset] = {
    "kaiming": InitPreset(_kaiming_std, _fill_normal),
    "kaiming_uniform": InitPreset(_kaiming_std, _fill_uniform),
    "xavier": InitPreset(_xavier_std, _fill_normal),
    "xavier_uniform": InitPreset(_xavier_std, _fill_uniform),
    "lecun": InitPreset(lambda fans, _gain: _kaiming_std(fans, 1.0), _fill_normal, uses_gain=False),
    "orthogonal": InitPreset(lambda _fans, gain: gain, nn.init.orthogonal_),
    "truncated_normal": InitPreset(
        lambda _fans, _gain: TRUNCATED_STD,
        _fill_truncated_normal,
        uses_gain=False,
        embedding_std=TRUNCATED_STD,
    ),
    "zeros": InitPreset(lambda _fans, _gain: 0.0, _fill_normal, uses_gain=False),
}

_TENSOR = re.compile(r"(weight|bias)(_(ih|hh|hr)(_l(\d+|\*).*)?)?|in_proj_(weight|bias)|[qkv]_proj_weight")

Rule = str | Callable[[Tensor], Any]
Rules = Mapping[type[nn.Module] | str, Rule]


@dataclass(frozen=True)
class MatchedInitRule:
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
            raise OptionError(f"No initialisation is called {rule!r}. {names_hint(rule, PRESETS)}")
        if not isinstance(rule, str) and (isinstance(rule, type) or not callable(rule)):
            raise OptionError(f"A rule is a name or a function of a tensor (nn.init.dirac_); got {rule!r}.")
    of_tensors = [each for each in rules if isinstance(each, str) and _is_tensor_name_pattern(each)]
    for pattern in of_tensors:
        match_layer_names(pattern, [slot.name for slot in slots], "tensor that can be initialised")
    if not rules:
        layer_selectors([], model)
    for selector in rules:  # a rule that nothing follows would be ignored in silence
        if selector not in of_tensors:
            layer_selectors([selector], model)
    return rules


def _is_tensor_name_pattern(pattern: str) -> bool:
    """Tell whether a pattern names tensors rather than layers: its last part is a tensor's name, not a wildcard."""
    return _TENSOR.fullmatch(pattern.rpartition(".")[2]) is not None


def init_rule_for(rules: Rules, slot: InitSlot) -> MatchedInitRule | None:
    """Return the rule for a tensor, or None."""
    by_name = [(pattern, rule) for pattern, rule in rules.items() if isinstance(pattern, str)]
    for pattern, rule in reversed(by_name):
        if _is_tensor_name_pattern(pattern) and fnmatchcase(slot.name, pattern):
            return MatchedInitRule(rule, 3)
    for pattern, rule in reversed(by_name):
        if not _is_tensor_name_pattern(pattern) and fnmatchcase(slot.layer, pattern):
            return MatchedInitRule(rule, 2)
    for kind in type_before_parametrizations(slot.module).__mro__:
        if kind in rules:
            return MatchedInitRule(rules[kind], 1)
    return None
