# SPDX-License-Identifier: Apache-2.0
"""Gradients computed and never used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.events import Path, Trace, TraceEvent
from truestep.doctor.source.loop_items import iterated_items
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, given_to, walk
from truestep.doctor.source.training_actions import STEP
from truestep.doctor.source.value_origins import value_origins
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

OFTEN = 3  # backwards, once the run has ended
ENDLESSLY = 256  # while it goes on: some accumulate over that many
_PARAMETERS = ("parameters", "named_parameters")
_NAMES = 3  # from an optimizer back to the models whose parameters it was given
LOOKED_AT = 64  # numbers of a parameter: a step moves every one that has a gradient


class StepMissing(SourceCheck, Watcher):
    """An optimizer is made and backward() runs in a loop, but nothing ever calls step().

    Why: the weights never change; the loss moves only because the batches differ.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()  # here

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: call optimizer.step() after backward().

    Evidence: the plain form of row 8 of docs/mistakes.md; beds K, U: 1 true, 1 debatable, 2 false.
    """

    code = "GRAD007"
    never = (STEP,)
    words = ("backward",)
    needs_no_step = True

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loop that clears an optimizer and goes backward, in a program that steps nothing."""
        if module.program.answer(_possible_step_calls):
            yield from _find_unstepped_optimizers(module)
            return
        for trace in module.traces:
            for backward in trace.of("backward"):
                path = backward.loop_path()
                if path and _optimizer_clears(module, trace, path) and not trace.within(path, "unknown"):
                    yield At(
                        backward.node,
                        "Gradients are computed and cleared in the loop, but nothing calls step().",
                    )
                    break

    def __init__(self) -> None:
        self.place: Place | None = None
        self.first: dict[int, list[Tensor]] = {}  # what a few parameters of each optimizer were at first

    def on_backward(self, history: WatchHistory, tensors: object, place: Place) -> Observations:
        """Remember where gradients are computed, and wait long for a step."""
        self.place = place
        for record in history.records.values():
            if id(record) not in self.first:
                self.first[id(record)] = [_first_values(each).clone() for each in record.followed()]
        if history.num_backwards == ENDLESSLY:
            yield from self._report_findings(history)

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report gradients that are left with an optimizer at the end."""
        if not history.is_cut_short and history.num_backwards >= OFTEN:
            yield from self._report_findings(history)

    def _report_findings(self, history: WatchHistory) -> Observations:
        idle = any(
            _holds_gradients(each) and not self._have_weights_moved(each) for each in history.records.values()
        )
        if idle and not history.stepped_optimizers() and self.place is not None:
            text = f"Gradients were computed {history.num_backwards} times, and no optimizer has stepped."
            yield Observation(self.place, text, evidence={"backwards": history.num_backwards})

    def _have_weights_moved(self, record: OptimizerRecord) -> bool:
        """Tell whether a step was made out of sight, as in a compiled function."""
        first = self.first.get(id(record), [])
        return any(
            not _first_values(now).equal(then) for now, then in zip(record.followed(), first, strict=False)
        )


def _optimizer_clears(module: SourceModule, trace: Trace, path: Path) -> list[TraceEvent]:
    """Return the clears of optimizers within a loop."""
    clears = trace.within(path, "zero_grad")
    return [each for each in clears if each.receiver and module.kind(each.receiver) == "optimizer"]


def _find_unstepped_optimizers(module: SourceModule) -> Iterator[At]:
    """Report an optimizer that is cleared before a backward, and never stepped, while only others are."""
    traces = module.traces
    steps = [each for trace in traces for each in trace.of("step", "scaler_step", "learn", "update")]
    stepped = {each.subject for each in steps}
    seen = {each.node for each in steps}
    named = module.program.answer(_possible_step_calls)
    if any(call not in seen and file.functions.target(call) is None for file, call in named):
        return  # by its name it may step
    if not all(_is_optimizer_made_in_sight(module, each) for each in steps) or any(
        trace.of("unknown") for trace in traces
    ):
        return
    told: set[str] = set()
    for trace in traces:
        for backward in trace.of("backward"):
            path = backward.loop_path()
            for clear in _optimizer_clears(module, trace, path) if path else ():
                if (
                    clear.made
                    and clear.subject not in stepped | told
                    and trace.order[clear] < trace.order[backward]
                    and not _are_all_models_stepped(module, steps, clear)
                ):
                    told.add(clear.subject)
                    name = ast.unparse(clear.receiver) if clear.receiver is not None else "the optimizer"
                    yield At(backward.node, f"Other optimizers step, and nothing calls {name}.step().")


def _are_all_models_stepped(module: SourceModule, steps: list[TraceEvent], clear: TraceEvent) -> bool:
    """Tell whether the optimizers that step were given each model that this one was: the weights do change."""
    mine = _models_of_optimizer(module, clear)
    others = [each for step in steps for each in _models_of_optimizer(module, step)]
    return bool(mine) and mine <= set(others)


def _models_of_optimizer(module: SourceModule, event: TraceEvent) -> set[str]:
    """Return the names of the models whose parameters an optimizer was made of, be it by way of other names."""
    made = list(value_origins(module, event.receiver)) if event.receiver is not None else []
    waiting = [part for each in made if isinstance(each, ast.Call) for part in given_to(each)]
    found: set[str] = set()
    for value in walk_each_once(waiting, partial(_definitions_of_names, module), _NAMES):
        calls = [each.func for each in walk(value) if isinstance(each, ast.Call)]
        methods = [each for each in calls if isinstance(each, ast.Attribute) and each.attr in _PARAMETERS]
        found |= {dotted_name(each.value) or "" for each in methods}
    return found - {""}


def _definitions_of_names(module: SourceModule, value: ast.expr) -> list[ast.expr]:
    names = [each for each in walk(value) if isinstance(each, ast.Name)]
    return [made for each in names for made in module.definitions(each) if made is not None]


def _is_optimizer_made_in_sight(module: SourceModule, step: TraceEvent) -> bool:
    """Tell whether it is seen where the optimizer that steps was made, be it in a list."""
    items = iterated_items(module.resolver, step.receiver) if step.receiver is not None else []
    return step.made or (bool(items) and all(isinstance(each, ast.Call) for each in items))


def _first_values(parameter: Tensor) -> Tensor:
    return parameter.detach().reshape(-1)[:LOOKED_AT]


def _holds_gradients(record: OptimizerRecord) -> bool:
    """Tell so; a scaler passes over steps while gradients are infinite."""
    gradients = [each.grad for each in record.parameters() if each.grad is not None]
    return bool(gradients) and all(bool(each.isfinite().all()) for each in gradients if not each.is_sparse)


def _possible_step_calls(files: list[SourceModule]) -> list[tuple[SourceModule, ast.Call]]:
    """Return the calls of a program that may step an optimizer, by their names."""
    return [(each, call) for each in files for call in each.all(ast.Call) if _can_step_optimizer(each, call)]


def _can_step_optimizer(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a call may step an optimizer: `opt.step()`, a wrapper's `step_and_update()`, `fused_step(opt)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if "step" not in name.lower() or module.kind(call) == "scheduler":  # StepLR(...) makes one
        return False
    return not isinstance(call.func, ast.Attribute) or module.kind(call.func.value) != "scheduler"
