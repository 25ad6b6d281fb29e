# SPDX-License-Identifier: Apache-2.0
"""Relations of the parameters with the loss: those that move it have a gradient, and those that it reaches are trained."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.text_formatting import plural
from truestep.doctor.relations.trials.cuts import find_graph_cuts
from truestep.doctor.relations.trials.slopes import CUT_BY_MEANING, weights_norm
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.relations.verdict import Verdict

_SHIFT = 0.01  # of the weights' size
_SMALLER = 0.2
_MOST_STEEPER = 2.5
_LEAST_MOVE = 1e-4  # of the loss
_ROUNDINGS = 1000
_MOST_NAMED = 4
_MOST_TRIED = 12
_SEED = 3
_UNIT = "relative change of the loss without a gradient"


def moving(trials: Trials) -> Verdict:
    """What moves the loss has a gradient: each number of a parameter whose gradient is exactly zero is tried."""
    still = {
        name: where
        for name, each in trials.whole.gradients.items()
        if (where := _zero_gradient_mask(trials, name, each)) is not None
    }
    if not still:
        return Verdict(
            "moving", "held", f"each of {plural(len(trials.whole.gradients), 'parameter')} has a gradient"
        )
    if trials.is_coarse:
        return Verdict("moving", "not tried", "the loss computes in half precision")
    found = _relative_loss_move(trials, still)
    if found <= _least_move(trials):
        why = f"{_listed(list(still))}: without a gradient in part or in whole, and moving that part changes nothing"
        return Verdict("moving", "held", why, expected=0.0, found=found, unit=_UNIT)
    moves = {
        name: move
        for name in list(still)[:_MOST_TRIED]
        if (move := _relative_loss_move(trials, {name: still[name]})) > _least_move(trials)
    }
    why = (
        f"{_listed(list(moves) or list(still))}: moving it changes the loss, and no gradient reaches it, or a part of it, which is "
        "never trained. Leave out detach(), no_grad(), .data or numpy() between it and the loss"
    )
    found = max(moves.values(), default=found)
    cuts = find_graph_cuts(trials)
    verdict = Verdict("moving", "broken", why, expected=0.0, found=found, unit=_UNIT, place=cuts.place)
    return replace(verdict, outcome="question", why=CUT_BY_MEANING) if cuts.is_meant else verdict


def _zero_gradient_mask(trials: Trials, name: str, gradient: Tensor | None) -> Tensor | None:
    """Return where a parameter has no gradient, None where all of it has one."""
    if gradient is None:
        return torch.ones_like(trials.trained.parameters[name], dtype=torch.bool)
    where = gradient.to_dense() == 0
    return where if bool(where.any()) else None


def _least_move(trials: Trials) -> float:
    return max(_LEAST_MOVE, _ROUNDINGS * trials.rounding)


def _relative_loss_move(trials: Trials, parts: dict[str, Tensor]) -> float:
    """Return how much the loss moves with these parts of parameters, the least of two steps taken for one size."""
    drawn = torch.Generator().manual_seed(_SEED)
    directions = {}
    for name, where in parts.items():
        parameter = trials.trained.parameters[name]
        noise = torch.randn(parameter.shape, generator=drawn, dtype=torch.float32)
        step = noise.to(parameter) * weights_norm(trials, [name]) / max(float(noise.norm()), 1e-6)
        directions[name] = _SHIFT * step * where
    moves = []
    for factor in (1.0, _SMALLER):
        with trials.moved({name: factor * each for name, each in directions.items()}):
            value = trials.value(trials.examples.fresh(), trials.examples.count)
        moves.append(abs(value - trials.whole.value) / (abs(trials.whole.value) or 1.0) / factor)
    # what jumps moves as much by a small step: a sign, a rounding, a choice
    return 0.0 if moves[1] > _MOST_STEEPER * moves[0] else min(moves)


def trained(trials: Trials) -> Verdict:
    """A parameter that the loss reaches is trained, if others of its module are."""
    known = {id(each) for each in trials.trained.parameters.values()}
    reached = {key for key in trials.whole.reached if key not in known}
    missing: dict[int, str] = {}
    for module in trials.outermost:
        own = dict(_named_module_parameters(module))
        others = {
            key
            for other in trials.outermost
            if other is not module and not known & {key for key, _ in _named_module_parameters(other)}
            for key, _ in _named_module_parameters(other)
        }
        if known & own.keys():
            missing |= {key: own[key] for key in reached & own.keys() - others}
    if not missing:
        return Verdict(
            "trained", "held", "the modules that are called hold no other parameter with a gradient"
        )
    why = (
        f"{_listed(list(missing.values()))}: the loss has a gradient for it, and it is not among what is trained. Put layers into "
        "nn.ModuleList or nn.ModuleDict, give the optimizer all parameters, or freeze them: parameter.requires_grad_(False)"
    )
    return Verdict(
        "trained", "broken", why, expected=0.0, found=float(len(missing)), unit="parameters left out, number"
    )


def _named_module_parameters(owner: Any, name: str = "", depth: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the parameters of a module by identity with their names, also those of layers that a list of its own holds."""
    if isinstance(owner, nn.Module):
        for key, parameter in owner.named_parameters():
            yield id(parameter), f"{name}.{key}".strip(".")
        for path, part in owner.named_modules():
            for key, value in vars(part).items():
                if not key.startswith("_") and isinstance(value, (list, tuple, dict)):
                    yield from _named_module_parameters(
                        value, f"{name}.{path}.{key}".replace("..", ".").strip("."), depth + 1
                    )
    elif isinstance(owner, Tensor):
        yield id(owner), name
    elif isinstance(owner, (list, tuple, dict)) and depth < 4:
        for place, value in owner.items() if isinstance(owner, dict) else enumerate(owner):
            yield from _named_module_parameters(value, f"{name}[{place!r}]", depth + 1)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
