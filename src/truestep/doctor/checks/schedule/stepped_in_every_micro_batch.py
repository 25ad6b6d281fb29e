# SPDX-License-Identifier: Apache-2.0
"""The schedule counts batches, the optimizer updates."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.counting import counts_batches
from truestep.doctor.source.events import TraceEvent, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import given_to, last_part
from truestep.doctor.source.values import seen_through
from truestep.doctor.source.windows import without_updates_of_others
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

WINDOWS = 2  # updates in a row in which the schedule stepped once for each backward
_BATCHES = re.compile(
    r"(steps|iters|iterations|batches)_(per|in)_epoch|num_(batches|iters|iterations)", re.IGNORECASE
)
_LENGTHS = ("T_max", "total_steps", "total_iters")


class SteppedInEveryMicroBatch(SourceCheck, Watcher):
    """With accumulation, the schedule is stepped at every batch, and the optimizer at every k-th.

    Why: a length in updates is used up after a k-th of them; one in batches is right, and PyTorch warns of the order.

    Bad:
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3 * len(loader) // 4)
        for epoch in range(3):
            for i, (x, y) in enumerate(loader):
                (F.cross_entropy(net(x), y) / 4).backward()
                if (i + 1) % 4 == 0 or i + 1 == len(loader):
                    opt.step()
                    opt.zero_grad()
                sched.step()  # here

    Good:
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3 * len(loader) // 4)
        for epoch in range(3):
            for i, (x, y) in enumerate(loader):
                (F.cross_entropy(net(x), y) / 4).backward()
                if (i + 1) % 4 == 0 or i + 1 == len(loader):
                    opt.step()
                    opt.zero_grad()
                    sched.step()

    Fix: step the schedule right after the optimizer, under the same test, and count its length in updates.

    Evidence: the plain form of row 11 of docs/mistakes.md; 186 repositories: 0 true, 1 debatable, 0 false.
    """

    code = "SCHED011"
    words = ("step()", "step(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a schedule's step that happens as often as the backward in a loop that accumulates."""
        for trace in module.traces:
            for loop in trace.training_loops():
                found = steps_per_backward(loop)
                if found is None:
                    continue
                event, num_steps = found
                if _lasts_batches(module, event):
                    text = (
                        f"The schedule counts batches, {num_steps} of them in each update of the optimizer."
                    )
                    yield At(event.node, text, ADVICE)
                else:
                    yield At(event.node, _message(num_steps), RISK)

    def __init__(self) -> None:
        self.steps: dict[int, list[Place]] = {}  # of the schedules of each optimizer, since its last step
        self.schedules: dict[int, Any] = {}  # by the identity of the optimizer's record
        self.windows: dict[int, int] = {}  # how many in a row had as many steps as backwards
        self.found: dict[int, tuple[Place, int]] = {}

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Count the steps of a schedule; one that waits for a metric has no length."""
        record = history.record_of(scheduler.optimizer)
        if record is not None and not hasattr(scheduler, "patience"):
            self.steps.setdefault(id(record), []).append(place)
            self.schedules[id(record)] = scheduler

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        """Compare the steps of the schedule since the last update with the backwards since then."""
        places = self.steps.pop(id(record), [])
        alike = 1 < len(places) == record.num_backwards and len(set(places)) == 1
        self.windows[id(record)] = self.windows.get(id(record), 0) + 1 if alike else 0
        if self.windows[id(record)] == WINDOWS:
            self.found.setdefault(id(record), (places[0], len(places)))

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report each; one whose length the whole run did not exceed was given it in batches."""
        for key, (place, num_steps) in self.found.items():
            scheduler = self.schedules[key]
            length = next((getattr(scheduler, each) for each in _LENGTHS if hasattr(scheduler, each)), None)
            fits = length is not None and not history.is_cut_short and scheduler.last_epoch <= length
            if not fits:
                evidence = {"steps": num_steps} | ({"length": length} if length is not None else {})
                yield Observation(place, _message(num_steps), RISK, evidence)


def _message(num_steps: int) -> str:
    return (
        f"The schedule is stepped {num_steps} times in each update: unless its length counts batches, it runs "
        f"{num_steps} times as fast as meant."
    )


def steps_per_backward(loop: TrainingLoop) -> tuple[TraceEvent, int] | None:
    """Return the schedule's step that comes once for each backward of every window but the first, and the longest."""
    run = execution_of(loop.trace, loop.path)
    windows = run.full_windows(loop.optimizer)
    if not windows or not run.is_certain:
        return None
    counts = [Counter[str]()]  # of each window; behind its own step is the first event of the next
    for event in without_updates_of_others(run.happened, loop.optimizer):
        counts[-1][event.kind] += 1
        if event.kind == "step":
            counts.append(Counter())
    stepped = {event.node: event for event in run.happened if event.kind == "schedule"}
    alike = [each["schedule"] == each["backward"] for each in counts[1:-1]]
    if len(stepped) != 1 or not alike or not all(alike):
        return None
    return next(iter(stepped.values())), len(windows[0].backwards)


def _lasts_batches(module: SourceModule, event: TraceEvent) -> bool:
    """Tell whether a schedule was given a number of batches, be it in the function that gives its factor."""
    made = module.definitions(event.receiver) if event.receiver is not None else []
    given = [each for call in made if isinstance(call, ast.Call) for each in _arguments(call)]
    factors = [inner for each in given for inner in _numbers_in(module, each)]
    behind = [value for each in factors for value in module.definitions(each) if value is not None]
    return any(counts_batches(module, each) for each in [*given, *factors, *behind]) or any(
        _BATCHES.search(last_part(each)) for each in factors
    )


def _numbers_in(module: SourceModule, given: ast.expr) -> list[ast.expr]:
    """Return what a function of the epoch computes with: a lambda, a function, an object that can be called."""
    if isinstance(given, (ast.List, ast.Tuple)):
        return [inner for each in given.elts for inner in _numbers_in(module, each)]
    function = module.functions.named(seen_through(module, given) or given) or module.functions.named(given)
    owner = module.classes.of(given) if function is None else None
    function = module.classes.method(owner, "__call__") if owner is not None else function
    parts = module.inside(function, ast.Name, ast.Attribute, ast.Call) if function is not None else []
    return [each for each in parts if not _is_divided(module, each)]


def _is_divided(module: SourceModule, node: ast.expr) -> bool:
    """Tell `len(loader) // 4`: a number of updates."""
    above = module.parents[node]
    return (
        isinstance(above, ast.BinOp) and isinstance(above.op, (ast.Div, ast.FloorDiv)) and above.left is node
    )


def _arguments(call: ast.Call) -> list[ast.expr]:
    return given_to(call)
