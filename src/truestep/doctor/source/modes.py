# SPDX-License-Identifier: Apache-2.0
"""Which mode a model is in where it is applied: what eval() and train() before it say."""

import ast
import itertools

from truestep.doctor.source.events import Path, Trace, TraceEvent
from truestep.doctor.source.frames import TOP, LocatedExpression
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk


def mode_before(module: SourceModule, trace: Trace, forward: TraceEvent) -> str | None:
    """Return "eval", "train", "unknown" (by a value that can't be seen), or None where nothing sets the mode.

    What a function sets and puts back (`was = net.training`, `net.train(was)`) leaves the mode as it was.
    """
    before = trace.events[: trace.events.index(forward)]
    modes = [
        event
        for event in before
        if event.kind in ("eval", "train")
        and not _left_behind(event, forward)
        and (_same(module, event, forward) or _is_given_to(module, trace, event, forward))
    ]
    while modes and _puts_back(module, modes[-1]):
        within = _call_path(modes.pop())
        while modes and modes[-1].inside(within):
            inner = modes.pop()
            if not within and inner.kind == "eval":
                break
    if not modes:
        return None
    return modes[-1].kind if _given(modes[-1]) is None else "unknown"


def another_set_before(trace: Trace, forward: TraceEvent) -> bool:
    """Tell whether the function around the forward calls eval() of something that may hold the model, after the last step."""
    before = trace.events[: trace.events.index(forward)]
    since = [each for each in before if each.kind in ("eval", "train", "step")][-1:]
    return any(
        each.kind == "eval" and _call_path(each) and forward.inside(_call_path(each)) for each in since
    )


def _left_behind(mode: TraceEvent, forward: TraceEvent) -> bool:
    """Tell a mode set in a branch that ends by `return` or `raise`: what comes behind it did not go there."""
    around = [frame.node for frame in forward.path]
    nodes = [*(frame.node for frame in mode.path), mode.node]
    for branch, within in itertools.pairwise(nodes):
        if isinstance(branch, ast.If) and branch not in around:
            for block in (branch.body, branch.orelse):
                leaves = bool(block) and isinstance(block[-1], ast.Return | ast.Raise)
                if leaves and any(within in walk(each) for each in block):
                    return True
    return False


def _given(mode: TraceEvent) -> ast.expr | None:
    """Return the variable of `net.train(variable)`."""
    args = mode.node.args if isinstance(mode.node, ast.Call) else []
    return args[0] if mode.kind == "train" and args and not isinstance(args[0], ast.Constant) else None


def _puts_back(module: SourceModule, mode: TraceEvent) -> bool:
    given = _given(mode)
    if given is None:
        return False
    values = [given, *module.definitions(given)]
    return any(isinstance(each, ast.Attribute) and each.attr == "training" for each in values)


def _call_path(event: TraceEvent) -> Path:
    calls = [index for index, frame in enumerate(event.path) if frame.kind == "call"]
    return event.path[: calls[-1] + 1] if calls else ()


def _same(module: SourceModule, mode: TraceEvent, forward: TraceEvent) -> bool:
    mine, other = forward.subject, mode.subject
    return (
        other in {mine, "?"}
        or mine.startswith(other + ".")
        or isinstance(mode.receiver, ast.Call)
        or other.endswith(".self")
        or (mode.kind == "eval" and _is_one_of_several(module, mode.receiver))
        or _holds(module, mode.receiver, mine.partition(".")[0])
    )


def _is_given_to(module: SourceModule, trace: Trace, mode: TraceEvent, forward: TraceEvent) -> bool:
    """Tell whether the model was handed to the constructor of what is set: it is a part of that now."""
    contexts = trace.contexts
    if contexts is None or mode.receiver is None or forward.receiver is None:
        return False
    contexts.choose(trace.world, trace.root)
    whole = contexts.origin(LocatedExpression(mode.receiver, mode.context or TOP))
    part = contexts.origin(LocatedExpression(forward.receiver, forward.context or TOP))
    if not isinstance(whole.node, ast.Call) or not isinstance(part.node, ast.Call):
        return False
    maker = module.home(part.node).enclosing(part.node, ast.ClassDef)
    known = maker is not None and module.classes.of(mode.receiver) is not None
    if known and maker is not None and _holds(module, mode.receiver, maker.name):
        return True  # made by what is set, and handed on to what applies it
    given = [*whole.node.args, *(word.value for word in whole.node.keywords)]
    return any(contexts.origin(LocatedExpression(each, whole.context)).node is part.node for each in given)


def _is_one_of_several(module: SourceModule, model: ast.expr | None) -> bool:
    """Tell `for net in (first, second): net.eval()`; train() so may be of a model's own layers, on purpose."""
    return isinstance(model, ast.Name) and any(each.how == "for" for each in module.names.bindings(model))


def _holds(module: SourceModule, model: ast.expr | None, name: str) -> bool:
    """Tell whether what is set is an instance of the class in whose method a layer is applied, or has one inside."""
    if not module.classes.has(name) or model is None:
        return False
    owner = module.classes.of(model)
    return owner is None or name in _classes_within(module, owner, set())


def _classes_within(module: SourceModule, owner: ast.ClassDef, seen: set[str]) -> set[str]:
    found = {each.name for each in module.classes.lineage(owner)} | seen
    for call in (
        node for each in module.classes.lineage(owner) for node in walk(each) if isinstance(node, ast.Call)
    ):
        if (made := module.classes.named(call.func)) is not None and made.name not in found:
            found |= _classes_within(module, made, found)
    return found
