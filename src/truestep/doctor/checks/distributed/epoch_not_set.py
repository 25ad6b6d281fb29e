# SPDX-License-Identifier: Apache-2.0
"""A DistributedSampler without set_epoch."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

from truestep.core.user_frames import is_library_file
from truestep.doctor.check import At, SourceCheck, Unsure
from truestep.doctor.finding import Place
from truestep.doctor.source.libraries import library_taking_over
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, names_in, walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, before
from truestep.doctor.source.training_actions import SET_EPOCH
from truestep.doctor.source.untaken_branches import is_never_taken
from truestep.doctor.source.value_origins import argument, has_star_args, literal
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


_HELD_OUT = re.compile(
    r"(^|[^a-z])(val|valid|validation|test|eval|evaluation|dev|infer|inference|predict)([^a-z]|$)",
    re.IGNORECASE,
)
_ENDS = 3  # of a range
_OF_DATA = ("dataset", "sampler", "batch_sampler")


class EpochNotSet(SourceCheck, Watcher):
    """A DistributedSampler shuffles, but set_epoch() is never called.

    Why: the order is a function of seed and epoch; without set_epoch every epoch has the same order.

    Bad:
        sampler = DistributedSampler(data)  # here
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        for epoch in range(10):
            for x, y in loader:
                train(x, y)

    Good:
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        for epoch in range(10):
            sampler.set_epoch(epoch)
            for x, y in loader:
                train(x, y)

    Fix: sampler.set_epoch(epoch) at the start of each epoch.

    Evidence: found in the wild (docs/wild.md); Project-MONAI/tutorials b3c6c998
    self_supervised_pretraining/vit_unetr_ssl/multi_gpu/mgpu_ssl_train.py:145; corpus, 186 repositories, beds A,
    B, C, F, G, H, I, K, M, N, P, Q, R, S, U, V, W, Y: 59 true, 3 debatable, 14 false.
    """

    code = "DIST001"
    never = (SET_EPOCH,)
    words = ("DistributedSampler",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report a shuffling sampler in a program with loops and no set_epoch."""
        loops = any(each.all(ast.For, ast.While) for each in module.program.linked)
        if module.program.called_anywhere("set_epoch", "prepare") or not loops:
            return
        library = library_taking_over(module, "set_epoch")
        for call in module.calls("torch.utils.data.DistributedSampler"):
            if (
                literal(module, argument(call, 3, "shuffle")) is not False
                and not has_star_args(call)
                and not _is_evaluation_sampler(module, call)
            ):
                if library is not None:
                    yield Unsure(call, f"{library} may do it")
                elif (
                    not _trains_or_repeats_loader(module)
                    or _is_returned_to_no_caller(module, call)
                    or _trains_one_epoch(module, call)
                ):
                    yield Unsure(call, "the loops over its loader are out of sight")
                elif _is_loader_of_sampler_unread(module, call):
                    yield Unsure(call, "the loader that is given it is used by nothing")
                elif is_never_taken(module, call):
                    yield Unsure(call, "no call in sight takes the branch that makes it")
                elif module.program.called_anywhere("torch.utils.data.DataLoader"):
                    yield At(call, "set_epoch() is never called: every epoch has the same order.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Set it at the start of the first loop over a range that holds a loop."""
        statement = module.statement(node)
        name = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
        for loop in module.all(ast.For):
            counts = isinstance(loop.iter, ast.Call) and module.qualify(loop.iter.func) == "range"
            inner = any(isinstance(each, ast.For) for each in loop.body)
            same = module.scope(loop) is module.scope(node) and isinstance(loop.target, ast.Name)
            if name is not None and counts and inner and same:
                return [before(module, loop.body[0], f"{name}.set_epoch({ast.unparse(loop.target)})")]
        raise SourceRewriteError

    def __init__(self) -> None:
        self.epochs: dict[int, list[int]] = {}

    def on_epoch(self, history: WatchHistory, source: Any, place: Place) -> Observations:
        """Report a shuffling sampler that begins the same epoch again, with training between.

        Code that calls set_epoch may have two passes an epoch: there the third one is reported.
        """
        if not all(hasattr(source, name) for name in ("set_epoch", "epoch", "num_replicas", "shuffle")):
            return
        begun = self.epochs.setdefault(id(source), [])
        if not source.shuffle or source.epoch != 0 or begun[-1:] == [history.num_steps]:
            return
        begun.append(history.num_steps)
        if len(begun) > (2 if _is_set_epoch_in_call_stack() else 1):
            yield Observation(
                place, "The sampler begins again with epoch 0: the order is the same.", evidence={"epoch": 0}
            )


def _is_set_epoch_in_call_stack() -> bool:
    """Tell whether any function of the user's that is running calls set_epoch."""
    frames = (frame for frame, _ in walk_stack(sys._getframe(1)))
    return any(
        "set_epoch" in frame.f_code.co_names and not is_library_file(frame.f_code.co_filename)
        for frame in frames
    )


def _is_returned_to_no_caller(module: SourceModule, call: ast.Call) -> bool:
    """Tell a sampler that a function gives back which nothing in the program calls, itself or within a loader."""
    scope = module.scope(call)
    if not isinstance(scope, Function) or module.functions.callers(scope):
        return False
    name = {dotted_name(each) for each in getattr(module.statement(call), "targets", [])}
    given = [each.value for each in module.functions.returns(scope) if each.value is not None]
    with_it = {
        dotted_name(target)
        for node in module.inside(scope, ast.Assign)
        if call in walk(node)
        for target in node.targets
    }
    readers = [module.statement(each) for known in name if known for each in module.reads(known)]
    for node in readers:
        targets = node.targets if isinstance(node, ast.Assign) else []
        with_it |= {dotted_name(each.value if isinstance(each, ast.Subscript) else each) for each in targets}
    return any(each is call or dotted_name(each) in name | with_it for each in given)


def _is_evaluation_sampler(module: SourceModule, call: ast.Call) -> bool:
    """Tell a sampler of held-out data, by what it is called, what takes it, and the function and tests around it."""
    statement = module.statement(call)
    texts = [_data_words_in_statement(module, statement, call)]
    name = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    readers = module.reads(name) if name is not None else []
    texts += [_data_words_in_statement(module, module.statement(each), each) for each in readers]
    for above in module.ancestors(call):
        texts += [ast.unparse(above.test)] if isinstance(above, ast.If) else []
        texts += [above.name] if isinstance(above, ast.FunctionDef) else []
    held_out = [each for each in texts if _HELD_OUT.search(each)]
    return bool(held_out) and not any("train" in each.lower() for each in held_out)


def _is_loader_of_sampler_unread(module: SourceModule, call: ast.Call) -> bool:
    """Tell a sampler whose every loader goes to a name of a function that nothing there reads."""
    statement = module.statement(call)
    name = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    given: list[ast.expr] = [call]
    if isinstance(statement, ast.Assign) and statement.value is call and name is not None:
        given = [each for each in module.reads(name) if module.scope(each) is module.scope(call)]
    loaders = [
        above
        for each in given
        for above in module.ancestors(each)
        if isinstance(above, ast.Call) and module.kind(above) == "loader"
    ]
    return bool(loaders) and all(_is_assigned_but_never_read(module, each) for each in loaders)


def _is_assigned_but_never_read(module: SourceModule, loader: ast.Call) -> bool:
    scope, statement = module.scope(loader), module.statement(loader)
    if not (isinstance(scope, Function) and isinstance(statement, ast.Assign) and statement.value is loader):
        return False
    used = {each.id for each in module.inside(scope, ast.Name) if isinstance(each.ctx, ast.Load)}
    used |= {name for each in module.inside(scope, ast.Global) for name in each.names}
    used |= {name for each in module.inside(scope, ast.Nonlocal) for name in each.names}
    return all(isinstance(each, ast.Name) and each.id not in used for each in statement.targets)


def _sibling_expressions(module: SourceModule, read: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands beside a name in a tuple, a list, or a call that makes no loader: it says nothing of that name."""
    around = {read, *module.ancestors(read)}
    for above in module.ancestors(read):
        if isinstance(above, ast.stmt):
            return
        parts: list[ast.expr] = above.elts if isinstance(above, (ast.Tuple, ast.List)) else []
        if isinstance(above, ast.Call) and module.kind(above) not in ("loader", "sampler"):
            parts = [above.func, *above.args, *(each.value for each in above.keywords)]
        yield from (each for each in parts if each not in around)


def _data_words_in_statement(module: SourceModule, statement: ast.stmt, read: ast.AST) -> str:
    """Return the names and texts of a statement; of a loader and a sampler what they are of, not how large its batches are."""
    left_out: set[ast.AST] = set()
    for beside in _sibling_expressions(module, read):
        left_out |= set(walk(beside))
    for call in (each for each in walk(statement) if isinstance(each, ast.Call)):
        if (module.qualify(call.func) or "").startswith("torch.utils.data."):
            words = [each.value for each in call.keywords if each.arg not in _OF_DATA]
            left_out |= {part for each in (*call.args[1:], *words) for part in walk(each)}
    parts = [each for each in walk(statement) if each not in left_out]
    texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return " ".join(
        [*texts, *(dotted_name(each) or "" for each in parts if isinstance(each, (ast.Name, ast.Attribute)))]
    )


def _trains_or_repeats_loader(module: SourceModule) -> bool:
    """Tell whether the program trains, or goes through a loader more than once."""
    loops_over = [
        loop for file in module.program.linked for loop in file.all(ast.For) if _is_loop_repeated(file, loop)
    ]
    sources = [each for loop in loops_over for each in walk(loop.iter)]
    loops = (module.kind(each) == "loader" for each in sources if isinstance(each, (ast.Name, ast.Attribute)))
    return bool(module.program.called_anywhere("backward", "step")) or any(loops)


def _functions_given_loader(module: SourceModule, sampler: ast.Call) -> set[Function]:
    """Return the functions of the program that stand beside the loader of a sampler: `Process(target=train, args=(loader,))`."""
    statement = module.statement(sampler)
    names = names_in(statement.targets[0]) if isinstance(statement, ast.Assign) else []
    reads = [each for name in names for each in module.reads(name)]
    beside = [part for each in reads for part in walk(module.statement(each)) if isinstance(part, ast.Name)]
    found = [module.functions.named(each) for each in beside]
    return {each for each in found if each is not None}


def _trains_one_epoch(module: SourceModule, sampler: ast.Call) -> bool:
    """Tell a program whose every loop over the batches of a training stands in one over one epoch: `range(0, 1)`."""
    rounds, trained = [], _functions_given_loader(module, sampler)
    for file in module.program.linked:
        for call in file.method_calls("backward"):
            if trained and file.scope(call) not in trained:
                continue
            around = [each for each in file.ancestors(call) if isinstance(each, (ast.For, ast.While))]
            scope = file.scope(call)
            called = file.functions.callers(scope) if isinstance(scope, Function) else []
            looped = any(file.home(each).loop(each) is not None for each in called)
            rounds.append(len(around) > 1 and not looped and _is_single_iteration_loop(file, around[-1]))
    return bool(rounds) and all(rounds)


def _is_single_iteration_loop(module: SourceModule, loop: ast.For | ast.While) -> bool:
    """Tell a loop that goes round once."""
    counted = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(counted, ast.Call) or module.qualify(counted.func) not in (None, "range"):
        return False
    ends = [literal(module, each) for each in counted.args]
    is_counted = dotted_name(counted.func) == "range" and all(isinstance(each, int) for each in ends)
    return is_counted and 0 < len(ends) <= _ENDS and len(range(*ends)) <= 1


def _is_loop_repeated(module: SourceModule, loop: ast.For) -> bool:
    """Tell a loop in another one, and one in a function that is called in a loop, or from out of sight."""
    scope = module.scope(loop)
    if module.loop(loop) is not None or not isinstance(scope, Function):
        return module.loop(loop) is not None
    calls = module.functions.callers(scope)
    return not calls or any(module.home(each).loop(each) is not None for each in calls)
