# SPDX-License-Identifier: Apache-2.0
"""A number of batches where a number of updates is meant."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.accumulators import before_preparing
from truestep.doctor.source.configured import configured_schedules
from truestep.doctor.source.counting import BATCHES, UPDATES, counted_unit, given
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.libraries import DIVIDES_LOSS, TRAINERS
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part
from truestep.doctor.source.schedules import lasts_batches
from truestep.doctor.source.values import argument, literal

_SCHEDULE = re.compile(r"lr|sched|warm|anneal|decay|cosine", re.IGNORECASE)


class BatchesTakenForUpdates(SourceCheck):
    """With accumulation, a count of updates is set against a count of batches.

    Why: there are fewer updates than batches: a schedule ends in its middle, a training runs too long, a resumed
    one goes on at the wrong place.

    Bad:
        accumulation_steps = 4
        total = 10 * len(loader)  # here
        updates = 0
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / accumulation_steps).backward()
            if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()
                updates += 1
            if updates >= total:
                break

    Good:
        accumulation_steps = 4
        total = 10 * len(loader) // accumulation_steps
        updates = 0
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / accumulation_steps).backward()
            if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()
                updates += 1
            if updates >= total:
                break

    Fix: divide the number of batches by the number of batches in an update.

    Evidence: 186 repositories, bed H: 1 true, 1 false.
    """

    code = "SCHED009"
    words = ("accum", "sched")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a comparison, a remainder, or a call that computes a rate, of one of each."""
        for node in module.all(ast.Compare, ast.BinOp, ast.Call):
            pair = _of_both(module, node)
            if pair is not None:
                text = f"{ast.unparse(pair[0])!r} counts batches, and {ast.unparse(pair[1])!r} updates."
                yield At(_where_made(module, pair[0], node), text, RISK)
        for scheduler in {*_stepped_by_update(module), *_stepped_by_library(module)}:
            text = "It lasts as many steps as there are batches, and is stepped once for each update."
            yield At(module.statement(scheduler), text, RISK)


def _stepped_by_update(module: SourceModule) -> Iterator[ast.Call]:
    """Yield the schedules that are stepped once in each window of several backwards, and given a number of batches."""
    for trace in module.traces:
        for loop in trace.training_loops():
            run = execution_of(trace, loop.path)
            windows = run.full_windows(loop.optimizer) if run.is_certain else []
            stepped = [event for event in run.happened if event.kind == "schedule"]
            alone = windows and len(stepped) == sum(event.kind == "step" for event in run.happened)
            receiver = stepped[0].receiver if alone and stepped else None
            for made in (
                module.definitions(before_preparing(module, receiver)) if receiver is not None else ()
            ):
                if isinstance(made, ast.Call) and lasts_batches(module, made) and module.home(made) is module:
                    yield made


def _stepped_by_library(module: SourceModule) -> Iterator[ast.Call]:
    """Yield the same of the schedules that Lightning steps after each update of several batches."""
    told = [
        argument(each, None, DIVIDES_LOSS[name])
        for name in TRAINERS
        for each in module.program.called_anywhere(name)
    ]
    if any(each is not None and literal(module, each) != 1 for each in told):
        for _, scheduler, interval in configured_schedules(module):
            if interval == "step" and lasts_batches(module, scheduler):
                yield scheduler


def _of_both(module: SourceModule, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Return the number of batches and the number of updates that meet in an expression."""
    match node:
        case ast.Compare(left=left, comparators=[right]):
            sides = [left, right]
        case ast.BinOp(op=ast.Mod(), left=left, right=right):
            sides = [left, right]
        case ast.Call() if _SCHEDULE.search(last_part(node.func)):
            sides = [*node.args, *(word.value for word in node.keywords if word.arg)]
        case _:
            return None
    if not any(isinstance(each, (ast.Name, ast.Attribute, ast.BinOp)) for each in sides):
        return None
    units = [counted_unit(module, each) for each in sides]
    if BATCHES in units and UPDATES in units:
        return sides[units.index(BATCHES)], sides[units.index(UPDATES)]
    return None


def _where_made(module: SourceModule, batches: ast.expr, otherwise: ast.AST) -> ast.AST:
    """Return the assignment that made the number of batches, or where it is used."""
    made = list(given(module, batches)) if isinstance(otherwise, ast.Compare) else []
    return module.statement(made[0]) if made else otherwise
