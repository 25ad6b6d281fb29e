# SPDX-License-Identifier: Apache-2.0
"""A schedule that never moves, or waits for the wrong end of its figure, or for that of one batch."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, BUG, RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.better_ends import better_end_of_figure
from truestep.doctor.source.live_variables import is_in_comment
from truestep.doctor.source.loaders import goes_over_batches, is_batch_length, loop_iterable
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, last_part, names_in, receiver_of, walk
from truestep.doctor.source.training_actions import SCHEDULE
from truestep.doctor.source.value_origins import argument, constant, has_star_args, literal, value_origins

_STEPS_SCHEDULES = re.compile(r"\blr_schedulers\b|lr_scheduler_(step|config)|\b_?update_learning_rates\b")
_PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"


class SchedulerNeverStepped(SourceCheck):
    """A learning-rate schedule is made and never stepped, or a plateau waits for the wrong end of its figure, or one batch's.

    Why: the rate stays what it was at the start. A plateau of mode "min" that is given an accuracy takes each better
    value for a worse one: it makes the rate smaller while the training goes well. The loss of a pass's last batch moves
    with whichever rows are in it.

    Bad:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)  # here
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            sched.step()

    Fix: scheduler.step() per epoch (or per batch, as its numbers mean), in manual optimization by
    self.lr_schedulers().step(). mode="max" for what grows as the model gets better, mode="min" for losses and
    errors; the mean over the pass in both.

    Evidence: beds A, C, E, G, K, M, N, O, P, Q, S, U, W, Y: 18 true, 7 debatable, 3 false.
    """

    code = "SCHED002"
    never = (SCHEDULE,)
    words = ("lr_scheduler",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one whose name is never read again, and a plateau's step by what its mode is against."""
        yield from _plateaus_of_other_mode(module)
        yield from _left_to_manual_optimization(module)
        yield from _plateaus_of_last_batch(module)
        for name, call in module.calls_matching("torch.optim.lr_scheduler."):
            target = module.statement(call)
            if not isinstance(target, ast.Assign) or target.value is not call or name.endswith("LRScheduler"):
                continue
            stored = dotted_name(target.targets[0])
            if stored is None or not any(trace.training_loops() for trace in module.traces):
                continue
            if stored.rsplit(".", 1)[-1] not in module.program.answer(_names_read):
                if (other := _other_used_scheduler(module, call)) is not None:
                    text = f"{stored!r} is made and never used: line {other.lineno} makes the schedule that sets the rate."
                    yield At(call, text, ADVICE)
                elif (by_hand := _manual_rate_update(module, call)) is not None:
                    text = f"{stored!r} is made and never used: line {by_hand.lineno} sets the rate by hand."
                    yield At(call, text, ADVICE)
                elif any(is_in_comment(file.text, stored) for file in module.program.linked):
                    text = f"{stored!r} is made and never used: what uses it is commented out."
                    yield At(call, text, ADVICE)
                else:
                    yield At(
                        call, f"{stored!r} is made and never used: the learning rate stays as it is.", BUG
                    )


def _plateau_steps(module: SourceModule) -> Iterator[tuple[ast.AST, ast.expr, ast.Call]]:
    """Yield where plateaus are given their figures, with the figure and the call that made the plateau."""
    stepped = [
        (step, receiver_of(step), argument(step, 0, "metrics")) for step in module.method_calls("step")
    ]
    handed = [
        (given, scheduler, monitor)
        for given in module.all(ast.Dict)
        for name in ("scheduler", "lr_scheduler")
        for scheduler, monitor in zip(
            *(module.resolver.part_of(given, each) or [] for each in (name, "monitor")), strict=False
        )
    ]
    for step, plateau, figure in (*stepped, *handed):
        made = [] if plateau is None else list(value_origins(module, plateau))
        call = made[0] if len(made) == 1 else None
        if figure is None or not isinstance(call, ast.Call) or has_star_args(call):
            continue
        if module.home(call).qualify(call.func) == _PLATEAU:
            yield step, figure, call


def _plateaus_of_other_mode(module: SourceModule) -> Iterator[At]:
    """Report what a plateau is given, where the name of it or what makes it says that its other end is the better one."""
    for step, figure, call in _plateau_steps(module):
        mode = argument(call, 1, "mode")
        way = "min" if mode is None else literal(module.home(call), mode)
        better = better_end_of_figure(module, figure)
        if better is not None and way in ("min", "max") and way != better:
            text = f"The plateau's mode is {way!r}, and the {better} of {ast.unparse(figure)!r} is its best value."
            yield At(step, text, RISK)


def _plateaus_of_last_batch(module: SourceModule) -> Iterator[At]:
    for step, figure, _ in _plateau_steps(module):
        if _is_loss_of_last_batch(module, figure):
            text = f"The plateau is given {ast.unparse(figure)!r}, the loss of the last batch alone."
            yield At(step, text, RISK)


def _is_loss_of_last_batch(module: SourceModule, figure: ast.expr, steps: int = 2) -> bool:
    """Tell the loss that a loop over batches made last, here or in the function that gives it back."""
    names = [each for each in walk(figure) if isinstance(each, ast.Name) and each.id != "float"]
    if len(names) != 1:
        return False
    made = module.resolver.reaching(names[0])
    around = {*module.ancestors(names[0])}
    loops = [module.loop(each.node) for each in made]
    values = [each.value for each in made if each.value is not None and each.how != "augmented"]
    if len(values) < len(made) or not made:
        return False
    if all(each is not None and each not in around and _has_many_batches(module, each) for each in loops):
        return all(_is_loss(module, each) for each in values)
    function = module.functions.target(values[0]) if isinstance(values[0], ast.Call) else None
    results = module.functions.results(function) if len(values) == 1 and steps else []
    return bool(results) and all(
        _is_loss_of_last_batch(module.home(each), each, steps - 1) for each in results
    )


def _has_many_batches(module: SourceModule, loop: ast.For | ast.While) -> bool:
    """Tell a loop over a loader that is not made to give all rows in one batch."""
    source = loop_iterable(module, loop)
    made = [] if source is None else list(value_origins(module, source))
    sizes = [argument(each, 1, "batch_size") for each in made if isinstance(each, ast.Call)]
    return goes_over_batches(module, loop) and not any(
        each is not None and is_batch_length(each) for each in sizes
    )


def _is_loss(module: SourceModule, value: ast.expr) -> bool:
    losses = {*loss_calls(module)}
    origins = list(value_origins(module, value))
    return bool(origins) and all(
        each in losses or (isinstance(each, ast.Attribute) and each.attr == "loss") for each in origins
    )


def _left_to_manual_optimization(module: SourceModule) -> Iterator[At]:
    """Report the schedules of a LightningModule that steps by hand, where nothing in sight could step a schedule."""
    if any(_STEPS_SCHEDULES.search(file.text) for file in module.program.linked):
        return
    for owner in module.kinds.classes_of("lightning module"):
        family = [*module.classes.lineage(owner), *module.classes.subclasses_of(owner)]
        switched = module.resolver.attribute_bindings(owner, "automatic_optimization")
        made_in = module.classes.method(owner, "configure_optimizers")
        steps = [step for file in module.program.linked for step in file.method_calls("step")]
        others = [step for step in steps if (by := receiver_of(step)) and module.kind(by) != "optimizer"]
        if (
            not switched
            or any(literal(module, each.value) is not False for each in switched)
            or made_in is None
            or module.home(made_in) is not module
            or module.classes.method(owner, "training_step") is None
            or any(module.home(each).enclosing(each, ast.ClassDef) in family for each in others)
            or any(module.kind(by) == "scheduler" for each in others if (by := receiver_of(each)))
        ):
            continue
        for _, call in module.calls_matching("torch.optim.lr_scheduler."):
            if made_in in module.ancestors(call):
                text = "Lightning steps no schedule where automatic_optimization is False, and nothing here does: the rate stays."
                yield At(call, text, BUG)


def _other_used_scheduler(module: SourceModule, unused: ast.Call) -> ast.Call | None:
    """Return the call that makes another schedule of the same optimizer, which is used."""
    optimizer = argument(unused, 0, "optimizer")
    read = module.program.answer(_names_read)
    for call in module.all(ast.Call):
        given = argument(call, 0, "optimizer")
        if call is unused or given is None or optimizer is None or module.kind(call) != "scheduler":
            continue
        is_same = dotted_name(given) is not None and dotted_name(given) == dotted_name(optimizer)
        if is_same and module.scope(call) is module.scope(unused) and _is_scheduler_read(module, call, read):
            return call
    return None


def _manual_rate_update(module: SourceModule, unused: ast.Call) -> ast.expr | None:
    """Return what gives the optimizer of a schedule that is left over its rate, again and again."""
    name = dotted_name(argument(unused, 0, "optimizer") or unused)
    home, owner = module.scope(unused), module.enclosing(unused, ast.ClassDef)
    for file in module.program.linked:
        for write, groups_of in _learning_rate_writes(file):
            function, written = file.scope(write), dotted_name(groups_of)
            is_own = written == name and (name or "").startswith("self.")
            is_own = is_own and file.enclosing(write, ast.ClassDef) is owner
            if (is_own or (written == name and function is home)) and _is_in_loop(file, write):
                return write
            if not isinstance(function, ast.FunctionDef) or written is None or function is home:
                continue
            for call in module.all(ast.Call):
                if module.functions.target(call) is function and _is_in_loop(module, call):
                    given = argument_for(function, call, written)
                    if is_own or (given is not None and dotted_name(given) == name):
                        return call
    return None


def _learning_rate_writes(module: SourceModule) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    """Yield what stands for `group["lr"] = ...`, with the optimizer whose group that is."""
    for write in module.all(ast.Subscript):
        if not isinstance(write.ctx, ast.Store) or constant(write.slice) != "lr":
            continue
        group = dotted_name(write.value)
        loops = [each for each in module.ancestors(write) if isinstance(each, ast.For)]
        over: list[ast.AST] = [each.iter for each in loops if group in names_in(each.target)]
        for part in walk(over[0] if over else write.value):
            if isinstance(part, ast.Attribute) and part.attr == "param_groups":
                yield write, part.value


def _is_in_loop(module: SourceModule, node: ast.AST) -> bool:
    """Tell what stands in a loop, other than one over the groups of an optimizer."""
    within = [each for each in module.ancestors(node) if isinstance(each, (ast.For, ast.While))]
    here = [each for each in within if module.scope(each) is module.scope(node)]
    return any(isinstance(each, ast.While) or "param_groups" not in ast.unparse(each.iter) for each in here)


def _is_scheduler_read(module: SourceModule, made: ast.Call, read: set[str]) -> bool:
    statement = module.statement(made)
    if not isinstance(statement, ast.Assign) or statement.value is not made:
        return True
    return any(last_part(each) in read for each in statement.targets)


def _names_read(files: list[SourceModule]) -> set[str]:
    """Return the last parts of all that is read in a program, whatever it is an attribute of."""
    nodes: list[ast.Name | ast.Attribute] = []
    for file in files:
        nodes += [*file.all(ast.Name), *file.all(ast.Attribute)]
    read = [node for node in nodes if isinstance(node.ctx, ast.Load)]
    return {last_part(each) for each in read}
