# SPDX-License-Identifier: Apache-2.0
"""Entries that leave the list that a loop goes through."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, names_in, receiver_of, walk
from truestep.doctor.source.value_origins import value_origins

_LEAVES = (ast.Break, ast.Return, ast.Raise)
_RAISING = (ast.Dict, ast.DictComp, ast.Set, ast.SetComp)  # Python refuses the next turn


class ListChangedWhileWalked(SourceCheck):
    """A loop takes entries out of the list that it goes through.

    Why: what follows moves up into the place of the entry, and the loop goes on behind it: each entry that comes next to
    one that is taken out is passed over, in data that are cleaned as in any others.

    Bad:
        files = ["a.png", "b.png"]
        for file in files:
            if torch.rand(()) < 0.5:
                files.remove(file)  # here

    Good:
        files = ["a.png", "b.png"]
        for file in list(files):
            if torch.rand(()) < 0.5:
                files.remove(file)

    Fix: go through a copy, list(files), or keep what stays: files = [file for file in files if ...].

    Evidence: JAVerma/clip_training 3fcb83c1 clip_train_full.py:88 and clip_full_train_2.py:88.
    """

    code = "VALUE045"
    is_preview = True
    words = (".remove(", ".pop(", "del ")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it where the loop goes on, the list has its name, and it is no dict or set."""
        for loop in module.all(ast.For):
            source, number = _walked(module, loop)
            name = dotted_name(source)
            if name is None or _is_bound_within(loop, name) or _can_raise(module, source):
                continue
            for node in _removals(module, loop, name, number):
                if not _is_left(module, loop, node):
                    yield At(
                        node, f"The entry of {name!r} behind it moves up, and the loop passes it over.", RISK
                    )


def _walked(module: SourceModule, loop: ast.For) -> tuple[ast.expr, str | None]:
    """Return what a loop goes through, be it behind a bar, and the name of its number under enumerate."""
    source, number = loop.iter, None
    while isinstance(source, ast.Call) and source.args:
        called = module.qualify(source.func) or dotted_name(source.func) or ""
        if called == "enumerate" and isinstance(loop.target, ast.Tuple):
            number = dotted_name(loop.target.elts[0])
        elif not called.endswith("tqdm"):
            break
        source = source.args[0]
    return source, number


def _is_bound_within(loop: ast.For, name: str) -> bool:
    stored = [each for each in walk(loop) if isinstance(each, (ast.Name, ast.Attribute))]
    return name in names_in(loop.target) or any(
        isinstance(each.ctx, ast.Store) and dotted_name(each) == name for each in stored
    )


def _can_raise(module: SourceModule, source: ast.expr) -> bool:
    """Tell a dict or a set."""
    made = [each for each in value_origins(module, source) if each is not None]
    called = [module.qualify(each.func) for each in made if isinstance(each, ast.Call)]
    return any(isinstance(each, _RAISING) for each in made) or any(
        each in ("dict", "set", "collections.OrderedDict", "collections.defaultdict") for each in called
    )


def _removals(module: SourceModule, loop: ast.For, name: str, number: str | None) -> Iterator[ast.AST]:
    """Yield what takes an entry out: by its value, or by a place, which the loop's own number is."""
    for call in module.inside(loop, ast.Call):
        receiver = receiver_of(call)
        if receiver is None or dotted_name(receiver) != name or not isinstance(call.func, ast.Attribute):
            continue
        at = call.args[0] if call.args else None
        by_place = at is None or isinstance(at, ast.Constant) or dotted_name(at) == number is not None
        if (call.func.attr == "remove" and at is not None) or (call.func.attr == "pop" and by_place):
            yield call
    for node in module.inside(loop, ast.Delete):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and dotted_name(target.value) == name:
                if number is not None and dotted_name(target.slice) == number:
                    yield node


def _is_left(module: SourceModule, loop: ast.For, node: ast.AST) -> bool:
    """Tell whether the loop, or the function, is left behind a statement without another turn."""
    inner: ast.AST = module.statement(node)
    while inner is not loop:
        above = module.parents[inner]
        blocks = [getattr(above, each, []) for each in ("body", "orelse", "finalbody")]
        behind = next((each[each.index(inner) :] for each in blocks if inner in each), [])
        if any(isinstance(each, _LEAVES) for each in behind):
            return True
        inner = above
    return False
