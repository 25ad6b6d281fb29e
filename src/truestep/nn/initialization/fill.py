# SPDX-License-Identifier: Apache-2.0
"""Drawing one tensor's values, and putting them where the tensor is."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _SpectralNorm

from truestep.core.errors import OptionError
from truestep.core.random_streams import torch_streams_put_back
from truestep.nn.initialization.rules import PRESETS, InitRule
from truestep.nn.initialization.slots import InitSlot

# The start vectors of a spectral norm follow a new weight by this many power iterations, as when it is made.
_POWER_ITERATIONS = 15


@dataclass(frozen=True)
class InitialFill:
    """What will be written to a tensor: its rule, the activation before its layer and the gain for it, a factor."""

    slot: InitSlot
    chosen: InitRule
    activation: str | None
    gain: float | None
    factor: float
    padding_rows: frozenset[int]  # they stay zero


@torch.no_grad()
def draw_initial_values(plan: InitialFill, generator: torch.Generator | None) -> tuple[Tensor, str]:
    """Return new values for a tensor, drawn in float32 at least, so that the type changes rounding only; and by which rule."""
    slot, rule, old = plan.slot, plan.chosen.rule, plan.slot.value
    if old.is_meta or old.is_complex():
        why = "is complex: initialise it yourself"
        if old.is_meta:
            why = "has no memory yet: call model.to_empty(device=...)"
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
        _call(rule, value, generator)
    elif rule != "zeros":
        done = _draw(slot, rule, plan.gain, value, generator)
    for row in plan.padding_rows:
        value[row] = 0.0
    return value if slot.is_bias else value.mul_(plan.factor), done


def _draw(
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


def _call(rule: Callable[[Tensor], Any], value: Tensor, generator: torch.Generator | None) -> None:
    """Call the user's function, which draws from torch's own stream: that one is seeded by `generator` meanwhile."""
    with nullcontext() if generator is None else torch_streams_put_back([value]):
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
