# SPDX-License-Identifier: Apache-2.0
"""A resumed training that begins with the wrong epoch."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.checkpoints import checkpoint_saves
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.value_origins import constant

MAX_NAMES = 3  # from what is saved back to the loop's number
MAX_CALLS = 4  # of one function by the other
_NEXT = 1  # what has to be added, while saving or while loading, to come to the next epoch

_SAME = ("int", "max", "min")  # one of what they are given
# what a number is told to
_TELLS = re.compile(
    r"print|format|write|info|debug|append|log|save|str|dict|add_(scalars?|histogram|images?|figure|text)"
)


class EpochOffOnResume(SourceCheck):
    """The epoch that a checkpoint holds and the one that a resumed loop begins with don't fit.

    Why: an epoch is trained twice, or left out; the schedule and all that counts epochs are off by one from there on.

    Bad:
        checkpoint = torch.load("last.pt")
        start = checkpoint["epoch"]  # here
        for epoch in range(start, 90):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "last.pt")

    Good:
        checkpoint = torch.load("last.pt")
        start = checkpoint["epoch"] + 1
        for epoch in range(start, 90):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "last.pt")

    Fix: save the number of epochs that are done (epoch + 1) and begin with it, or begin with the saved one plus 1.

    Evidence: 186 repositories, beds F, G, H, I, M, N, O, P, S, T, V, W: 18 true, 3 debatable, 1 false.
    """

    code = "SAVE016"
    words = ("torch.load",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report where the first epoch is read, if the sum of what is added on both ways is not 1."""
        loops = [each for each in module.all(ast.For) if _range_start(each) is not None]
        for loop in loops:
            if isinstance(loop.target, ast.Name):
                yield from _find_wrong_first_epoch(module, loop)


def _find_wrong_first_epoch(module: SourceModule, loop: ast.For) -> Iterator[At]:
    first = _range_start(loop)
    reads = list(_checkpoint_keys_behind(module, first)) if first is not None else []
    saved = _saved_epoch_offsets(module, loop) if reads else {}
    severity = QUESTION if _is_epoch_only_logged_or_saved(module, loop) else RISK
    for each in reads:
        if each.key in saved and (text := _wrong_epoch_message(each, saved[each.key])):
            yield At(each.node, text, severity)


def _is_epoch_only_logged_or_saved(module: SourceModule, loop: ast.For) -> bool:
    """Tell `range(first, first + epochs)` whose number is only told and saved: as many epochs, be the first right or not."""
    first = _range_start(loop)
    ends = [each.args[1] for each in walk(loop.iter) if isinstance(each, ast.Call) and first in each.args]
    match ends:
        case [ast.BinOp(left=left, op=ast.Add(), right=right)] if first is not None:
            if ast.dump(first) not in (ast.dump(left), ast.dump(right)):
                return False
        case _:
            return False
    name = dotted_name(loop.target)
    reads = [each for each in walk(loop) if isinstance(each, ast.Name) and each.id == name]
    above = [module.enclosing(each, ast.Call) for each in reads if each is not loop.target]
    called = [each.func for each in above if each is not None]
    return all(_TELLS.fullmatch(getattr(each, "attr", getattr(each, "id", ""))) for each in called)


def _wrong_epoch_message(read: "_KeyRead", saved: set[int]) -> str | None:
    """Return what is wrong, where all saves of the key agree on it."""
    if len(saved) != 1 or (off := read.added + next(iter(saved)) - _NEXT) == 0:
        return None
    what = "is trained again" if off < 0 else "is left out"
    return (
        f"The epoch saved under {read.key!r} and where the loop begins don't fit: after a resume one {what}."
    )


def _range_start(loop: ast.For) -> ast.expr | None:
    """Return the first number of `for epoch in range(first, last)`, whatever shows its progress."""
    for each in walk(loop.iter):
        if (
            isinstance(each, ast.Call)
            and (dotted_name(each.func) or "").endswith("range")
            and len(each.args) > 1
        ):
            return each.args[0]
    return None


def _saved_epoch_offsets(module: SourceModule, loop: ast.For) -> dict[str, set[int]]:
    """Return what is added to the loop's number under each key that is saved behind the training of the loop."""
    found: dict[str, set[int]] = {}
    for file in module.program.linked:
        for save in checkpoint_saves(file):
            for key, value in save.keys.items():
                for added in _offsets_from_loop_variable(file, loop, value):
                    found.setdefault(key, set()).add(added)
    return found


def _offsets_from_loop_variable(module: SourceModule, loop: ast.For, value: ast.expr) -> Iterator[int]:
    """Yield what is added to the loop's number, where a value is made of it in the loop, not in one inside of it."""

    def sources_with_offsets(place: tuple[ast.expr, int]) -> list[tuple[ast.expr, int]]:
        node, added = place
        if not isinstance(node, ast.Name) or _is_loop_variable(module, loop, node):
            return []
        values = [_split_constant_offset(each) for each in module.definitions(node) if each is not None]
        return [(each, more + added) for each, more in values]

    for node, added in walk_each_once([_split_constant_offset(value)], sources_with_offsets, MAX_NAMES):
        if isinstance(node, ast.Name) and _is_loop_variable(module, loop, node):
            if _is_after_training(module, loop, node):
                yield added


def _is_loop_variable(module: SourceModule, loop: ast.For, name: ast.Name) -> bool:
    return any(each.how == "for" and each.node in (loop, loop.target) for each in module.names.bindings(name))


def _is_after_training(module: SourceModule, loop: ast.For, node: ast.expr) -> bool:
    """Tell a save that stands in the loop itself, behind an inner loop or a call which may train."""
    if module.loop(node) is not loop or module.enclosing(node, ast.ExceptHandler) is not None:
        return False
    around = set(module.ancestors(node))
    before = [
        each
        for each in walk(loop)
        if isinstance(each, ast.stmt) and each not in around and (each.end_lineno or 0) < node.lineno
    ]
    return any(_can_run_backward(module, each) for each in before if module.loop(each) is loop)


def _can_run_backward(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether something goes backward in a loop, or in a function of the program that is called."""

    def called_functions(each: ast.AST) -> list[ast.AST]:
        targets = [module.functions.target(call) for call in module.home(each).inside(each, ast.Call)]
        return [target for target in targets if target is not None]

    return any(
        _is_backward_call(call) and (each is not node or module.loop(call) is not module.loop(node))
        for each in walk_each_once([node], called_functions, MAX_CALLS)
        for call in module.home(each).inside(each, ast.Call)
    )


def _is_backward_call(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("backward", "manual_backward")


@dataclass(frozen=True)
class _KeyRead:
    """A number that is read under a key: which key, what is added to it, and where it is read."""

    key: str
    added: int
    node: ast.expr


def _split_constant_offset(node: ast.expr) -> tuple[ast.expr, int]:
    """Return x and 2 of `x + 2`, and x and -1 of `x - 1`."""
    total = 0
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        right, left = constant(node.right), constant(node.left)
        if isinstance(right, int):
            total += right if isinstance(node.op, ast.Add) else -right
            node = node.left
        elif isinstance(left, int) and isinstance(node.op, ast.Add):
            total += left
            node = node.right
        else:
            break
    return node, total


def _checkpoint_keys_behind(module: SourceModule, value: ast.expr) -> Iterator[_KeyRead]:
    """Yield the keys under which a number may be read from a file, through names, attributes and calls."""
    added = dict[ast.expr, int]()  # what is added on the way to each

    def sources(node: ast.expr) -> list[ast.expr]:
        found = []
        for given in _direct_sources(module, node) if _lookup_key(node) is None else []:
            source, more = _split_constant_offset(given)
            later = _added_later(module, node, given)
            if later is not None:  # what is out of sight may be right
                added.setdefault(source, added[node] + more + later)
                found.append(source)
        return found

    first, added_first = _split_constant_offset(value)
    added[first] = added_first
    for node in walk_each_once([first], sources):
        if (key := _lookup_key(node)) is not None:
            yield _KeyRead(key, added[node], node)


def _added_later(module: SourceModule, node: ast.expr, value: ast.expr) -> int | None:
    """Return what `first += 1` adds to a name behind the line that gives it a value; None where that can't be told."""
    home, place = module.home(value), dotted_name(node)
    changes = [
        each
        for each in home.stores
        if isinstance(each, ast.AugAssign)
        and dotted_name(each.target) == place
        and home.scope(each.target) is home.scope(value)
    ]
    around = [*home.ancestors(value)]
    total = 0
    for each in changes:
        amount = constant(each.value)
        if (
            not isinstance(amount, int)
            or not isinstance(each.op, (ast.Add, ast.Sub))
            or home.loop(each) is not home.loop(value)
            or home.parents[each] not in around
            or each.lineno < value.lineno
        ):
            return None
        total += amount if isinstance(each.op, ast.Add) else -amount
    return total


def _lookup_key(node: ast.expr) -> str | None:
    """Return K of `c[K]`, `c.get(K)` and `c.pop(K)`."""
    if isinstance(node, ast.Subscript):
        found = constant(node.slice)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "pop")
    ):
        found = constant(node.args[0]) if node.args else None
    else:
        return None
    return found if isinstance(found, str) else None


def _direct_sources(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name in _SAME:
            return list(args)
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.Call():
            function = module.functions.target(node)
            return module.functions.results(function)
        case ast.Name():
            return _values_assigned_to(module, node)
        case ast.Attribute():
            place, home = dotted_name(node), module.home(node)
            stores = [
                each for each in home.all(ast.Assign) if place and dotted_name(each.targets[0]) == place
            ]
            found = [each.value for each in stores]
            return found or [each for each in module.definitions(node) if each is not None]
    return []


def _values_assigned_to(module: SourceModule, name: ast.Name) -> list[ast.expr]:
    """Return what a name is given wherever its scope binds it: an `if args.resume:` stands around one of them."""
    found: list[ast.expr] = []
    for binding in module.names.bindings(name):
        if binding.how == "assign" and binding.value is not None:
            found.append(binding.value)
        elif binding.how == "unpack" and isinstance(binding.value, ast.Call):
            found += _returned_elements(module, binding.value, binding.position)
        elif binding.how == "parameter":
            found += [each for each in module.definitions(name) if each is not None]
    return found


def _returned_elements(module: SourceModule, call: ast.Call, position: tuple[int, ...]) -> list[ast.expr]:
    function = module.functions.target(call)
    results = module.functions.results(function)
    whole = [each for each in results if isinstance(each, ast.Tuple) and len(position) == 1]
    return [each.elts[position[0]] for each in whole if position[0] < len(each.elts)]
