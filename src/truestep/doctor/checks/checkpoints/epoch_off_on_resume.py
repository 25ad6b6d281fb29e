# SPDX-License-Identifier: Apache-2.0
"""A resumed training that begins with the wrong epoch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.checkpoints import saves_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.once import each_once
from truestep.doctor.source.resuming import KeyRead, keys_behind, shifted

MAX_NAMES = 3  # from what is saved back to the loop's number
MAX_CALLS = 4  # of one function by the other
_NEXT = 1  # what has to be added, while saving or while loading, to come to the next epoch


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

    Evidence: 186 repositories: 1 true, 0 false.
    """

    code = "SAVE016"
    words = ("torch.load",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report where the first epoch is read, if the sum of what is added on both ways is not 1."""
        loops = [each for each in module.all(ast.For) if _first(each) is not None]
        for loop in loops:
            if isinstance(loop.target, ast.Name):
                yield from _off(module, loop)


def _off(module: SourceModule, loop: ast.For) -> Iterator[At]:
    first = _first(loop)
    reads = list(keys_behind(module, first)) if first is not None else []
    saved = _saved(module, loop) if reads else {}
    for each in reads:
        if each.key in saved and (text := _told(each, saved[each.key])):
            yield At(each.node, text, RISK)


def _told(read: KeyRead, saved: set[int]) -> str | None:
    """Return what is wrong, where all saves of the key agree on it."""
    if len(saved) != 1 or (off := read.added + next(iter(saved)) - _NEXT) == 0:
        return None
    what = "is trained again" if off < 0 else "is left out"
    return (
        f"The epoch saved under {read.key!r} and where the loop begins don't fit: after a resume one {what}."
    )


def _first(loop: ast.For) -> ast.expr | None:
    """Return the first number of `for epoch in range(first, last)`, whatever shows its progress."""
    for each in walk(loop.iter):
        if isinstance(each, ast.Call) and (dotted(each.func) or "").endswith("range") and len(each.args) > 1:
            return each.args[0]
    return None


def _saved(module: SourceModule, loop: ast.For) -> dict[str, set[int]]:
    """Return what is added to the loop's number under each key that is saved behind the training of the loop."""
    found: dict[str, set[int]] = {}
    for file in module.program.linked:
        for save in saves_of(file):
            for key, value in save.keys.items():
                for added in _counts(file, loop, value):
                    found.setdefault(key, set()).add(added)
    return found


def _counts(module: SourceModule, loop: ast.For, value: ast.expr) -> Iterator[int]:
    """Yield what is added to the loop's number, where a value is made of it in the loop, not in one inside of it."""

    def behind(place: tuple[ast.expr, int]) -> list[tuple[ast.expr, int]]:
        node, added = place
        if not isinstance(node, ast.Name) or _is_number_of(module, loop, node):
            return []
        values = [shifted(each) for each in module.definitions(node) if each is not None]
        return [(each, more + added) for each, more in values]

    for node, added in each_once([shifted(value)], behind, MAX_NAMES):
        if isinstance(node, ast.Name) and _is_number_of(module, loop, node):
            if _is_behind_training(module, loop, node):
                yield added


def _is_number_of(module: SourceModule, loop: ast.For, name: ast.Name) -> bool:
    return any(each.how == "for" and each.node in (loop, loop.target) for each in module.names.bindings(name))


def _is_behind_training(module: SourceModule, loop: ast.For, node: ast.expr) -> bool:
    """Tell a save that stands in the loop itself, behind an inner loop or a call which may train."""
    if module.loop(node) is not loop or module.enclosing(node, ast.ExceptHandler) is not None:
        return False
    around = set(module.ancestors(node))
    before = [
        each
        for each in walk(loop)
        if isinstance(each, ast.stmt) and each not in around and (each.end_lineno or 0) < node.lineno
    ]
    return any(_may_train(module, each) for each in before if module.loop(each) is loop)


def _may_train(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether something goes backward in a loop, or in a function of the program that is called."""

    def called(each: ast.AST) -> list[ast.AST]:
        targets = [module.functions.target(call) for call in module.home(each).inside(each, ast.Call)]
        return [target for target in targets if target is not None]

    return any(
        _goes_backward(call) and (each is not node or module.loop(call) is not module.loop(node))
        for each in each_once([node], called, MAX_CALLS)
        for call in module.home(each).inside(each, ast.Call)
    )


def _goes_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("backward", "manual_backward")
