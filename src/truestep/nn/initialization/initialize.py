# SPDX-License-Identifier: Apache-2.0
"""Initial weights for a whole model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import nn

from truestep.errors import OptionError
from truestep.nn.activations import Activation, activation_gain
from truestep.nn.initialization.fill import Gain, assign, fresh
from truestep.nn.initialization.presets import PRESETS
from truestep.nn.initialization.report import Initialization, InitializedTensor
from truestep.nn.initialization.rules import Chosen, Rule, Rules, checked, choose
from truestep.nn.initialization.slots import Slot, slots
from truestep.nn.layers import check_model, full_name, refuse_lazy, refuse_unmatched
from truestep.nn.preceding import UNKNOWN, Preceding, preceding_activations

# What these tensors become whatever the rule for their layer's weight is.
_FIXED = {"bias": "zeros", "forget bias": "zeros, forget gate ones"}


@dataclass(frozen=True)
class _Plan:
    """What will be written: each tensor once, with its rule, its factor and its gain."""

    slot: Slot
    chosen: Chosen
    gain: Gain
    factor: float


def initialize(
    model: nn.Module,
    rules: Rule | Rules,
    *,
    activation: Activation | None = None,
    scale: Mapping[str, float] | None = None,
    generator: torch.Generator | None = None,
) -> Initialization:
    """Initialise a model's layers by kind or name, with the gain of the activation before each, in place.

    Rules are names or functions of a weight such as `nn.init.dirac_`. The names: "kaiming" and "kaiming_uniform" (He et
    al. 2015, by fan-in), "xavier" and "xavier_uniform" (Glorot and Bengio 2010), "lecun" (fan-in, gain 1, for SELU),
    "orthogonal" (Saxe et al. 2014), "truncated_normal" (0.02, cut at two of them), "zeros". Whatever the rule for a
    layer's weight, its biases become 0 (an LSTM's forget gate 1) and the scales of norm layers 1, with their running
    statistics reset; recurrent weights are orthogonal gate by gate; embeddings get a standard deviation of 1, with the row
    of `padding_idx` kept zero.

    The gain is that of the activation whose output a layer takes, as in He et al.: it keeps the size of what is passed on,
    for any activation (see `activation_gain`). It is read from the model's graph; after a norm, or nothing, it is 1.

    Args:
        model: changed in place; normalised and other parametrized weights are set through their `right_inverse`.
        rules: one rule for all layers, or a dict from kinds (`nn.Linear`) and patterns of layers' or tensors' names
            (`"head.*"`, `"*.bias"`) to rules. Names go before kinds, later names before earlier ones.
        activation: what comes before the layers for which that can't be read from the model: `nn.ReLU()`.
        scale: factors on weights and norm scales by pattern: `{"*.bn2": 0.0}` for the last layer of each residual branch.
        generator: where the numbers come from; torch's own by default.

    Raises:
        OptionError: a rule or pattern that matches nothing; lazy layers; a gain that can't be known.
    """
    check_model(model)
    refuse_lazy(model)
    found = list(slots(model))
    refuse_unmatched(model, scale or {})
    plans, tied = _plan(model, found, checked(rules, model, found), activation, scale or {})
    tensors = tuple(_write(plan, generator) for plan in plans)
    for plan in plans:
        if isinstance(plan.slot.module, nn.modules.batchnorm._NormBase):
            plan.slot.module.reset_running_stats()
    return Initialization(
        tensors=tensors, tied=tied, left=_left(model, found, {plan.slot.name for plan in plans}, tied)
    )


def _plan(
    model: nn.Module,
    found: list[Slot],
    rules: Rules,
    activation: Activation | None,
    scale: Mapping[str, float],
) -> tuple[list[_Plan], dict[str, str]]:
    candidates: dict[int, list[tuple[Slot, Chosen]]] = {}
    for slot in found:
        chosen = choose(rules, slot)
        if chosen is not None and (chosen.nearness > 1 or not slot.is_frozen):
            candidates.setdefault(id(slot.held), []).append((slot, chosen))
    before = preceding_activations(model)
    fallback = Preceding(activation) if activation is not None else UNKNOWN
    plans: list[_Plan] = []
    tied: dict[str, str] = {}
    for same in candidates.values():
        # A weight that is an embedding and a matrix gets the matrix's size: logits of an embedding's would be far too large.
        slot, chosen = max(same, key=lambda pair: (pair[1].nearness, pair[0].role != "embedding"))
        tied |= {other.name: slot.name for other, _ in same if other is not slot}
        known = before.get(slot.layer, UNKNOWN)
        factor = next(
            (f for pattern, f in reversed(list(scale.items())) if fnmatchcase(slot.layer, pattern)), 1.0
        )
        padding = [other for other, _ in same if other.role == "embedding"]
        plans.append(
            _Plan(slot, chosen, _gain(slot, chosen, known if known.known else fallback, padding), factor)
        )
    _refuse_unknown(plans)
    return plans, tied


def _gain(slot: Slot, chosen: Chosen, before: Preceding, embeddings: Iterable[Slot]) -> Gain:
    needed = slot.role == "weight" and isinstance(chosen.rule, str) and PRESETS[chosen.rule].uses_gain
    rows = {int(each.module.padding_idx) for each in embeddings if each.module.padding_idx is not None}  # type: ignore[arg-type]
    if isinstance(slot.module, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention):
        before = Preceding()
    if not needed:
        return Gain(None, None, frozenset(rows))
    if not before.known:
        return Gain("unknown", None, frozenset(rows))
    return Gain(
        before.name,
        activation_gain(before.activation) if before.activation is not None else 1.0,
        frozenset(rows),
    )


def _refuse_unknown(plans: Iterable[_Plan]) -> None:
    unknown = [plan.slot.layer for plan in plans if plan.gain.activation == "unknown"]
    if unknown:
        raise OptionError(
            f"Which activation comes before {', '.join(unknown)} can't be read from the model, and the rule needs it: after "
            "a ReLU weights are √2 larger. Say it with activation=nn.ReLU(), or use a rule without a gain for these layers."
        )


def _write(plan: _Plan, generator: torch.Generator | None) -> InitializedTensor:
    slot = plan.slot
    value = fresh(slot, plan.chosen, plan.gain, generator)
    if not slot.is_bias:
        value.mul_(plan.factor)
    assign(slot, value)
    return InitializedTensor(
        name=slot.name,
        shape=tuple(value.shape),
        rule=_FIXED.get(slot.role, plan.chosen.name) if plan.chosen.nearness < 3 else plan.chosen.name,
        activation=plan.gain.activation,
        gain=plan.gain.value,
        root_mean_square=float(value.square().mean().sqrt()),
    )


def _left(model: nn.Module, found: list[Slot], done: set[str], tied: Mapping[str, str]) -> dict[str, str]:
    left = {}
    known = {slot.name: slot for slot in found}
    for layer, module in model.named_modules():
        if ".parametrizations" in f".{layer}":
            continue
        for tensor, parameter in module._parameters.items():
            name = full_name(layer, tensor)
            if parameter is None or name in done or name in tied:
                continue
            if name not in known:
                left[name] = f"no rule for {type(module).__name__}'s {tensor}"
            else:
                left[name] = "frozen" if known[name].is_frozen else "no rule matches"
    return left
