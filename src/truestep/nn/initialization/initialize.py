# SPDX-License-Identifier: Apache-2.0
"""Initial weights for a whole model."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm

from truestep.core.errors import OptionError, check_number
from truestep.core.random_streams import preserve_torch_rng
from truestep.core.result_display import RenderableType, Result, result_table
from truestep.nn.activations import Activation, activation_gain
from truestep.nn.initialization.preceding_activation import (
    UNKNOWN,
    PrecedingActivation,
    preceding_activations,
)
from truestep.nn.initialization.rules import (
    PRESETS,
    InitSlot,
    MatchedInitRule,
    Rule,
    Rules,
    check_init_rules,
    init_rule_for,
    init_slots,
)
from truestep.nn.layer_lookup import (
    layer_matches,
    layer_selectors,
    layer_tensor_name,
    refuse_lazy_layers,
    refuse_non_module,
)

# The start vectors of a spectral norm follow a new weight by this many power iterations, as when it is made.
_POWER_ITERATIONS = 15


@dataclass(frozen=True)
class InitializationPlan:
    """What will be written to a tensor: its rule, the activation before its layer and the gain for it, a factor."""

    slot: InitSlot
    chosen: MatchedInitRule
    activation: str | None
    gain: float | None
    factor: float
    padding_rows: frozenset[int]  # they stay zero


@torch.no_grad()
def draw_initial_values(plan: InitializationPlan, generator: torch.Generator | None) -> tuple[Tensor, str]:
    """Return new values for a tensor, drawn in float32 at least, so that the type changes rounding only; and by which rule."""
    slot, rule, old = plan.slot, plan.chosen.rule, plan.slot.value
    if old.is_meta or old.is_complex():
        why = "is complex: initialise it yourself"
        if old.is_meta:
            why = "has no memory yet: call model.to_empty(device='cpu')"
        raise OptionError(f"{slot.name} {why}, or leave it out of the rules.")
    device = generator.device if generator is not None else old.device
    dtype = torch.float64 if old.dtype == torch.float64 else torch.float32
    value = torch.zeros(old.shape, dtype=dtype, device=device)
    done = plan.chosen.name
    if slot.is_bias and plan.chosen.nearness < 3:
        done = "zeros"
        if slot.role == "forget bias":
            done = "zeros, forget gate ones"
            # torch's order of gates is input, forget, cell, output.
            value[value.shape[0] // 4 : value.shape[0] // 2] = 1.0
    elif not isinstance(rule, str):
        _call_custom_init_rule(rule, value, generator)
    elif rule != "zeros":
        done = _fill_by_preset(slot, rule, plan.gain, value, generator)
    for row in plan.padding_rows:
        value[row] = 0.0
    return value if slot.is_bias else value.mul_(plan.factor), done


def _fill_by_preset(
    slot: InitSlot, rule: str, gain: float | None, value: Tensor, generator: torch.Generator | None
) -> str:
    """Fill a tensor by a preset; return the rule that was followed, since some roles have one of their own."""
    preset = PRESETS[rule]
    if slot.is_bias:
        raise OptionError(
            f"{rule!r} is a distribution of weights and {slot.name} is a bias; use a function: lambda bias: bias.fill_(-2.0)."
        )
    if slot.role == "scale":
        value.fill_(1.0)
        return "ones"
    if slot.role == "embedding":
        value.normal_(0.0, preset.embedding_std, generator=generator)
        return rule if rule == "truncated_normal" else "normal"
    orthogonal = slot.role == "recurrent" and rule != "truncated_normal"
    std = preset.std(slot.fans(), 1.0 if gain is None else gain)
    for part in value.chunk(slot.chunks):
        nn.init.orthogonal_(part, 1.0, generator) if orthogonal else preset.fill(part, std, generator)
    return "orthogonal" if orthogonal else rule


def _call_custom_init_rule(
    rule: Callable[[Tensor], Any], value: Tensor, generator: torch.Generator | None
) -> None:
    """Call the user's function, which draws from torch's own stream: that one is seeded by `generator` meanwhile."""
    with nullcontext() if generator is None else preserve_torch_rng([value]):
        if generator is not None:
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
        returned = rule(value)
    if isinstance(returned, Tensor) and returned is not value:
        raise OptionError(
            f"The rule {getattr(rule, '__name__', rule)!r} returned a new tensor, which nobody uses. Write into the one it is "
            "given, as nn.init.normal_ does: lambda weight: weight.fill_(0.1)."
        )


@torch.no_grad()
def assign_initial_values(slot: InitSlot, value: Tensor) -> None:
    """Write new values into a parameter, or through the parametrizations of a computed tensor."""
    held = slot.held
    if isinstance(held, Tensor):
        held.copy_(value)
        return
    old = slot.value
    try:
        setattr(slot.module, slot.tensor, value.to(old.device, old.dtype))
    except (RuntimeError, NotImplementedError) as error:
        raise OptionError(
            f"{slot.name} is computed by {', '.join(type(each).__name__ for each in held)}, which can't be inverted: initialise it "  # type: ignore[attr-defined]
            "before it is parametrized, or leave it out of the rules."
        ) from error
    for part in held.modules():
        if isinstance(part, _SpectralNorm):
            part._power_method(part._reshape_weight_to_matrix(held.original), _POWER_ITERATIONS)  # type: ignore[arg-type]
    if not slot.value.isfinite().all():
        raise OptionError(
            f"{slot.name} became NaN: its norm divides by a length, and the new values hold zeros. "
            "Leave zeros to layers without one."
        )


@dataclass(frozen=True, kw_only=True)
class InitializedTensor:
    """One tensor: its rule, the activation before its layer with the gain that was used, and its size now."""

    name: str
    shape: tuple[int, ...]
    rule: str
    activation: str | None
    gain: float | None
    root_mean_square: float


@dataclass(frozen=True, kw_only=True)
class Initialization(Result):
    """The tensors that were initialised; those that are one with another (tied); those left, and why."""

    tensors: tuple[InitializedTensor, ...]
    tied: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)

    def __rich__(self) -> RenderableType:
        written = [
            (
                *(each.name, "×".join(map(str, each.shape)), each.rule, each.activation or ""),
                *("" if each.gain is None else f"{each.gain:.4g}", f"{each.root_mean_square:.3g}"),
            )
            for each in self.tensors
        ]
        tied = [(name, "", f"is {other}") for name, other in self.tied.items()]
        left = [(name, "", f"left: {reason}") for name, reason in self.left.items()]
        return result_table(
            f"tensors initialised: {len(self.tensors)}, left: {len(self.left)}",
            ("tensor", "shape", "rule", "activation before it", "gain", "root mean square"),
            [*written, *tied, *left],
        )


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
    for any activation (see `activation_gain`). It is read from the model's graph; after a norm, a sum, or nothing, it is 1.

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
    refuse_non_module(model)
    refuse_lazy_layers(model)
    _check_options(activation, scale, generator)
    found = list(init_slots(model))
    norms = {name: each for name, each in model.named_modules() if isinstance(each, _NormBase)}
    if not found and not norms:
        raise OptionError(
            f"{type(model).__name__} has no layer whose weights can be initialised (linear, convolutional, recurrent, embedding, "
            "attention or norm layers of torch.nn)."
        )
    for selector in scale or ():
        layer_selectors([selector], model)
    rules = check_init_rules(rules, model, found)
    plans, tied = _plan_initialization(model, found, rules, activation, scale or {})
    tensors = tuple(_draw_and_assign(plan, generator) for plan in plans)
    written = {plan.slot.module for plan in plans}
    for name, norm in norms.items():
        slot = InitSlot(name, norm, "weight", "scale")  # which it would have
        if norm in written or (not norm.affine and init_rule_for(rules, slot)):
            norm.reset_running_stats()
    done = {plan.slot.name for plan in plans} | set(tied)
    return Initialization(tensors=tensors, tied=tied, left=_uninitialized_tensors(model, found, done))


def _plan_initialization(
    model: nn.Module,
    found: list[InitSlot],
    rules: Rules,
    activation: Activation | None,
    scale: Mapping[str, float],
) -> tuple[list[InitializationPlan], dict[str, str]]:
    candidates: dict[int, list[tuple[InitSlot, MatchedInitRule]]] = {}
    for slot in found:
        chosen = init_rule_for(rules, slot)
        if chosen is not None and (chosen.nearness > 1 or not slot.is_frozen):
            candidates.setdefault(id(slot.held), []).append((slot, chosen))
    before = preceding_activations(model)
    fallback = PrecedingActivation(activation) if activation is not None else UNKNOWN
    plans: list[InitializationPlan] = []
    tied: dict[str, str] = {}
    for same in candidates.values():
        # A weight that is an embedding and a matrix gets the matrix's size: logits of an embedding's would be far too large.
        slot, chosen = max(same, key=lambda pair: (pair[1].nearness, pair[0].role != "embedding"))
        tied |= {other.name: slot.name for other, _ in same if other is not slot}
        known = before.get(slot.layer, UNKNOWN)
        name, gain = _activation_name_and_gain(slot, chosen, known if known.known else fallback)
        factors = [each for like, each in scale.items() if layer_matches(like, slot.layer, slot.module)]
        rows = {getattr(other.module, "padding_idx", None) for other, _ in same}
        padding = frozenset(row for row in rows if row is not None)
        plans.append(InitializationPlan(slot, chosen, name, gain, [1.0, *factors][-1], padding))
    if unknown := [plan.slot.layer for plan in plans if plan.activation == "unknown"]:
        raise OptionError(
            f"Which activation comes before {', '.join(unknown)} can't be read from the model, and the rule needs it: after "
            "a ReLU weights are √2 larger. Say it with activation=nn.ReLU(), or use a rule without a gain for these layers."
        )
    return plans, tied


def _activation_name_and_gain(
    slot: InitSlot, chosen: MatchedInitRule, before: PrecedingActivation
) -> tuple[str | None, float | None]:
    """Return the name of the activation before a tensor's layer and the gain for it; None where the rule needs none."""
    if slot.role != "weight" or not isinstance(chosen.rule, str) or not PRESETS[chosen.rule].uses_gain:
        return None, None
    if isinstance(slot.module, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention):
        before = PrecedingActivation()
    if not before.known:
        return before.name, None
    return before.name, 1.0 if before.activation is None else activation_gain(before.activation)


def _draw_and_assign(plan: InitializationPlan, generator: torch.Generator | None) -> InitializedTensor:
    value, rule = draw_initial_values(plan, generator)
    assign_initial_values(plan.slot, value)
    return InitializedTensor(
        name=plan.slot.name,
        shape=tuple(value.shape),
        rule=rule,
        activation=plan.activation,
        gain=plan.gain,
        root_mean_square=float(value.square().mean().sqrt()),
    )


def _check_options(activation: object, scale: object, generator: object) -> None:
    if activation is not None:
        activation_gain(activation)  # type: ignore[arg-type]  # raises where it has none
    if generator is not None and not isinstance(generator, torch.Generator):
        raise OptionError(
            f"generator={generator!r}: write torch.Generator().manual_seed(0), or leave it out for torch's own stream."
        )
    if not isinstance(scale, Mapping | None):
        raise OptionError(f'scale={scale!r}: write a factor for each pattern, scale={{"*.bn2": 0.0}}.')
    for pattern, factor in (scale or {}).items():
        check_number("ts.nn.initialize", f"scale[{pattern!r}]", factor, example=0.5)
        if not math.isfinite(factor):
            raise OptionError(f"scale[{pattern!r}]={factor} makes no weights. Give a finite number.")


def _uninitialized_tensors(model: nn.Module, found: list[InitSlot], done: set[str]) -> dict[str, str]:
    """Return the tensors that were not written, and why."""
    left = {}
    known = {slot.name: slot for slot in found}
    for layer, module in model.named_modules():
        if ".parametrizations" in f".{layer}":
            continue
        for tensor, parameter in module._parameters.items():
            name = layer_tensor_name(layer, tensor)
            if name in known and name not in done:
                left[name] = "frozen" if known[name].is_frozen else "no rule matches"
            elif parameter is not None and name not in done:
                left[name] = f"no rule for {type(module).__name__}'s {tensor}"
    return left
