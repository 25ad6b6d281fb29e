# SPDX-License-Identifier: Apache-2.0
"""A schedule in batches that is stepped per epoch; one in epochs that is stepped per batch."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.libraries import TRAINERS, has_class_switch
from truestep.doctor.source.library_accumulators import (
    accumulators_entered,
    has_accumulation_option,
    num_batches,
)
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import given_to, last_part, walk
from truestep.doctor.source.value_origins import argument, constant, literal, value_origins, value_sources

# by the end of a schedule's name: position and name of its length
_LENGTHS = {
    "CosineAnnealingLR": (1, "T_max"),
    "LinearLR": (3, "total_iters"),
    "PolynomialLR": (1, "total_iters"),
    "OneCycleLR": (2, "total_steps"),
    "_with_warmup": (2, "num_training_steps"),
}
# nobody would give their length in epochs
_BY_KIND = ("OneCycleLR", "CyclicLR", "with_warmup")
_STEPS = re.compile(r"(^|_)(steps?|iters?|iterations?|batch(es)?)(_|$)", re.IGNORECASE)
_BATCHES = ("estimated_stepping_batches", "num_training_batches")  # attributes of Lightning's trainer
_OWN = ("automatic_optimization", "lr_scheduler_step")  # then the user steps it
_FAR = 5  # times the number of epochs: nobody gives a length in epochs of which so little is seen


class BatchesCountedPerEpoch(SourceCheck):
    """A schedule that counts batches is stepped per epoch, by a loop or by Lightning; or one that counts epochs, per batch.

    Why: of a schedule over all batches that is stepped once per epoch, as Lightning does unless it is told otherwise,
    the warm-up lasts for hundreds of epochs, and the rate never comes near its end. A cosine over `epochs` steps that
    every batch steps is over after so many batches, and climbs again.

    Bad:
        class Task(lightning.LightningModule):
            def configure_optimizers(self):
                opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
                total = self.trainer.estimated_stepping_batches
                sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-3, total_steps=total)
                return {"optimizer": opt, "lr_scheduler": sched}  # here

    Good:
        class Task(lightning.LightningModule):
            def configure_optimizers(self):
                opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
                total = self.trainer.estimated_stepping_batches
                sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-3, total_steps=total)
                return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}

    Fix: give it its length in what it is stepped by: epochs * len(loader) behind every update, epochs behind each epoch;
    of Lightning {"scheduler": scheduler, "interval": "step"}.

    Evidence: 186 repositories: said 1 times, not judged; beds D, P, W: 4 true, 1 debatable, 0 false.
    """

    code = "SCHED012"
    words = ("configure_optimizers", "lr_scheduler", "_schedule")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what configure_optimizers returns, if a schedule in it counts batches by its length or its kind."""
        for owner in module.kinds.classes_of("lightning module"):
            function = module.classes.method(owner, "configure_optimizers")
            is_own = function is not None and module.enclosing(function, ast.ClassDef) is owner
            if function is None or not is_own or any(has_class_switch(module, owner, each) for each in _OWN):
                continue
            calls = [each for each in module.inside(function, ast.Call) if module.kind(each) == "scheduler"]
            calls = [each for each in calls if not _is_kept_back(module, each, function)]
            told = {
                each: found for each in calls if (found := _batch_counting_severity(module, each)) is not None
            }
            returns = module.functions.returns(function)
            if told and returns and "interval" not in ast.unparse(function):
                name = last_part(next(iter(told)).func)
                text = (
                    f'{name} counts batches, and Lightning steps it once per epoch: "interval" is not "step".'
                )
                yield At(returns[-1], text, BUG if BUG in told.values() else RISK)
        yield from _find_epoch_schedules_per_batch(module)
        yield from _find_batch_schedules_per_epoch(module)
        yield from _find_batch_schedules_per_update(module)


def _is_kept_back(module: SourceModule, scheduler: ast.Call, function: ast.AST) -> bool:
    """Tell a schedule under a name that the function does not read: Lightning does not get it, and does not step it."""
    above = module.parents[scheduler]
    if not isinstance(above, ast.Assign) or not isinstance(above.targets[0], (ast.Name, ast.Attribute)):
        return False
    names = {last_part(each) for each in above.targets}
    read = [each for each in walk(function) if isinstance(getattr(each, "ctx", None), ast.Load)]
    return not any(isinstance(each, (ast.Name, ast.Attribute)) and last_part(each) in names for each in read)


def _batch_counting_severity(module: SourceModule, scheduler: ast.Call) -> Severity | None:
    """Return how certain it is that a schedule counts batches: by what its length is made of, names, or its kind."""
    nodes = _length_expressions(module, scheduler)
    words = [last_part(each) for each in nodes if isinstance(each, (ast.Name, ast.Attribute))]
    lengths = [each for each in nodes if _is_length_of_loader(module, each)]
    if any(_is_divisor(module, each) for each in lengths):
        return None
    if lengths or any(each in _BATCHES for each in words):
        return BUG
    if (
        any("epoch" in each.lower() for each in words)
        or constant(argument(scheduler, None, "steps_per_epoch")) == 1
    ):
        return None
    # what StepLR and MultiStepLR take has this word of itself
    words = [
        each for each in words if "StepLR" not in last_part(scheduler.func) or "step" not in each.lower()
    ]
    is_named = any(map(_STEPS.search, words)) or last_part(scheduler.func).endswith(_BY_KIND)
    return RISK if is_named or _is_far_above_num_epochs(module, nodes) else None


def _length_expressions(module: SourceModule, scheduler: ast.Call) -> list[ast.AST]:
    given = [each for each in given_to(scheduler) if module.kind(each) != "optimizer"]
    return [node for each in given for part in _with_origins(module, each) for node in walk(part)]


def _with_origins(module: SourceModule, given: ast.expr) -> list[ast.AST]:
    """Return an argument, what its names stand for, and the function that it is, or that makes it."""
    names = [each for each in walk(given) if isinstance(each, (ast.Name, ast.Attribute))]
    functions = [module.functions.named(each) for each in names]
    functions += [module.functions.target(given)] if isinstance(given, ast.Call) else []
    inner = [
        each for function in functions if function is not None for each in module.inside(function, ast.Name)
    ]
    made = [each for name in [*names, *inner] for each in module.definitions(name)]
    return [each for each in (given, *functions, *made) if each is not None]


def _is_length_of_loader(module: SourceModule, node: ast.AST) -> bool:
    match node:
        case ast.Call(func=function, args=[given]) if last_part(function) == "len":
            return module.kind(given) == "loader"
    return False


def _is_divisor(module: SourceModule, node: ast.AST) -> bool:
    above = module.parents[node]
    return (
        isinstance(above, ast.BinOp) and isinstance(above.op, (ast.Div, ast.FloorDiv)) and above.right is node
    )


def _is_far_above_num_epochs(module: SourceModule, nodes: list[ast.AST]) -> bool:
    """Tell a number that the epochs of the program's trainer never come near to."""
    trainers = [(file, call) for file in module.program.linked for call in file.calls(*TRAINERS)]
    given = [literal(file, argument(call, None, "max_epochs")) for file, call in trainers]
    epochs = max((each for each in given if isinstance(each, int) and each > 0), default=None)
    numbers = [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    return epochs is not None and any(each >= _FAR * epochs for each in numbers)


def _find_epoch_schedules_per_batch(module: SourceModule) -> Iterator[At]:
    """Report a schedule as long as the loop over epochs that is stepped in the loop over batches within."""
    told: set[ast.AST] = set()
    for trace in module.traces:
        for step in trace.of("schedule"):
            made = _schedule_constructor(module, step)
            if made is None or step.node in told or not isinstance(step.node, ast.Call) or step.node.args:
                continue
            around = _epoch_and_batch_loops(trace, step)
            epochs = _iteration_count(around[0]) if around is not None else None
            named = _origin_texts(module, epochs) if epochs is not None else frozenset()
            length = _schedule_length(made)
            if named and length is not None and named == _origin_texts(module, length):
                told.add(step.node)
                assert around is not None
                assert epochs is not None
                yield At(step.node, _epochs_per_batch_text(last_part(made.func), epochs, around[1]), RISK)


def _epochs_per_batch_text(name: str, epochs: ast.expr, batches: ast.AST) -> str:
    number = ast.unparse(epochs)
    option = next((word for end, (_, word) in _LENGTHS.items() if name.endswith(end)), "")
    factor = number if isinstance(epochs, (ast.Name, ast.Attribute, ast.Constant)) else f"({number})"
    return (
        f"{name} is given {number}, the number of epochs, and is stepped in every batch: write "
        f"{option}={factor} * len({_loader_text(batches)})."
    )


def _find_batch_schedules_per_epoch(module: SourceModule) -> Iterator[At]:
    """Report a schedule as long as all batches that is stepped behind the loop over the batches of an epoch."""
    told: set[ast.AST] = set()
    for trace in module.traces:
        made = [
            (step, call)
            for step in trace.of("schedule")
            if (call := _schedule_constructor(module, step)) is not None
        ]
        for step, call in made:
            beside = [each for each, other in made if other is call and len(each.loops()) != 1]
            if beside or step.node in told or not _is_after_epoch_updates(trace, step):
                continue
            if _batch_counting_severity(module, call) is BUG:
                told.add(step.node)
                name = ast.unparse(call.func).rsplit(".", 1)[-1]
                text = f"{name} is given the number of all batches, and is stepped once per epoch: the rate hardly moves."
                yield At(step.node, text, RISK)


def _find_batch_schedules_per_update(module: SourceModule) -> Iterator[At]:
    """Report a schedule as long as all batches that an accumulating library steps once for several of them."""
    for trace in module.traces:
        within = [each for each in trace.of("schedule") if any(frame.kind == "with" for frame in each.path)]
        for step in (each for each in within if each.loops()):
            contexts = execution_of(trace, step.loop_path()).contexts
            blocks = (each for each in step.path if each.kind == "with")
            opened = [found for each in blocks for found in accumulators_entered(contexts, each)]
            made = _schedule_constructor(module, step)
            if (
                made is None
                or not opened
                or not _is_prepared(module, step)
                or not has_accumulation_option(opened[0])
            ):
                continue
            divided = [
                each
                for each in _length_expressions(module, made)
                if isinstance(each, ast.BinOp) and isinstance(each.op, (ast.Div, ast.FloorDiv))
            ]
            if (
                not divided
                and num_batches(contexts, opened[0]) != 1
                and _batch_counting_severity(module, made) is BUG
            ):
                name = last_part(made.func)
                text = f"{name} is given the number of all batches, and is stepped once for several: the end never comes."
                yield At(step.node, text, RISK)


def _is_after_epoch_updates(trace: Trace, step: TraceEvent) -> bool:
    """Tell a step in the loop over epochs of which every update is made in a loop within."""
    loops = [place for place, frame in enumerate(step.path) if frame.kind == "loop"]
    if (
        len(loops) != 1
        or step.branches(step.path[: loops[0]])
        or _iteration_count(step.path[loops[0]].node) is None
    ):
        return False
    updates = trace.within(step.path[: loops[0] + 1], "step")
    return bool(updates) and all(len(each.loops()) == 2 for each in updates)


def _schedule_length(made: ast.Call) -> ast.expr | None:
    """Return the length that a schedule is given."""
    name = last_part(made.func)
    given = [argument(made, *place) for end, place in _LENGTHS.items() if name.endswith(end)]
    return given[0] if given else None


def _schedule_constructor(module: SourceModule, step: TraceEvent) -> ast.Call | None:
    """Return the one call that made a schedule."""
    made = [*value_origins(module, step.receiver)] if step.receiver is not None else []
    return made[0] if len(made) == 1 and isinstance(made[0], ast.Call) else None


def _is_prepared(module: SourceModule, step: TraceEvent) -> bool:
    """Tell whether a library gave the schedule back: `model, schedule = accelerator.prepare(model, schedule)`."""
    match list(value_sources(module, step.receiver)) if step.receiver is not None else []:
        case [(ast.Call() as call, (() | (_,)) as place)]:
            return module.classes.prepared(call, *(place or (0,))) is not None
    return False


def _epoch_and_batch_loops(trace: Trace, step: TraceEvent) -> tuple[ast.AST, ast.AST] | None:
    """Return the two loops around a step that comes with every update of an optimizer, whatever is asked between."""
    loops = [place for place, frame in enumerate(step.path) if frame.kind == "loop"]
    if len(loops) != 2 or step.branches(step.path[: loops[0]]):
        return None
    inner = step.path[: loops[1] + 1]
    outer_alone = [each for each in trace.within(step.path[: loops[0] + 1], "step") if len(each.loops()) != 2]
    batches = step.path[loops[1]].node
    is_one = any(isinstance(each, ast.Break) for each in getattr(batches, "body", ()))
    is_counted = isinstance(batches, ast.For) and _iteration_count(batches) is not None
    if (
        outer_alone
        or is_one
        or is_counted
        or not trace.within(inner, "step")
        or not trace.within(inner, "backward")
    ):
        return None
    return step.path[loops[0]].node, batches


def _loader_text(loop: ast.AST) -> str:
    """Return what a loop over batches goes through, without what counts or shows them."""
    source = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(source, ast.Call) and source.args:
        source = source.args[0]
    return ast.unparse(source) if isinstance(source, (ast.Name, ast.Attribute)) else "loader"


def _iteration_count(loop: ast.AST) -> ast.expr | None:
    """Return n of `for epoch in range(n)`, of `range(first, n)` and `range(1, n + 1)`, and of `while epoch < n`."""
    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Compare):
        return loop.test.comparators[0] if isinstance(loop.test.ops[0], ast.Lt) else None
    source = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(source, ast.Call) and source.args and isinstance(source.args[0], ast.Call):
        source = source.args[0]  # `tqdm(range(n))`
    if not isinstance(source, ast.Call) or not ast.unparse(source.func).endswith("range") or not source.args:
        return None
    end = source.args[0] if len(source.args) == 1 else source.args[1]
    is_next = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add) and constant(end.right) == 1
    return end.left if is_next and isinstance(end, ast.BinOp) else end


def _origin_texts(module: SourceModule, node: ast.expr) -> frozenset[str]:
    """Return what a number is read from: the constants, by their places, or the options, by their names."""
    # what comes from out of sight is told by its name
    found = [each or node for each in value_origins(module, node)]
    return frozenset(
        f"{id(each)}" if isinstance(each, ast.Constant) else ast.unparse(each).removeprefix("self.")
        for each in found
    )
