# SPDX-License-Identifier: Apache-2.0
"""Images and labels from two listings of folders, in whatever order the file system gives."""

import ast
from collections.abc import Iterator
from typing import TypeGuard

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk

_LISTINGS = functions("lists files")


class ListingsPairedUnsorted(SourceCheck):
    """Two listings of files are paired by position, and neither is sorted.

    Why: os.listdir and glob give files in any order, which need not be the same in two folders: images get other images' labels.

    Bad:
        import glob
        images = glob.glob("train/images/*.png")
        labels = glob.glob("train/labels/*.png")
        pairs = list(zip(images, labels))  # here

    Good:
        import glob
        images = sorted(glob.glob("train/images/*.png"))
        labels = sorted(glob.glob("train/labels/*.png"))
        pairs = list(zip(images, labels))

    Fix: sort both, or derive one name from the other.
    """

    code = "DATA036"
    words = ("listdir", "glob")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report two unsorted listings in one zip, or indexed with one name in one function."""
        if "torch" in module.text:
            for node, given in (*_zipped(module), *_indexed(module)):
                yield At(node, f"{_shown(given)} are paired in whatever order they are listed.", RISK)


def _zipped(module: SourceModule) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    for call in module.calls("zip"):
        unsorted = [each for each in call.args if _is_listing(module, each)]
        folders = {_listed(module, each) for each in unsorted}
        if len(folders) > 1 and not _is_sorted_later(module, unsorted):
            yield call, unsorted


def _indexed(module: SourceModule) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """Yield the listings that one function reads at the same places, once for each such set of them."""
    pairs: dict[tuple[ast.AST, str], dict[str, ast.Subscript]] = {}
    for node in module.all(ast.Subscript):
        if isinstance(node.slice, ast.Name) and isinstance(node.ctx, ast.Load):
            name, scope = dotted(node.value), module.scope(node)
            in_function = not isinstance(scope, ast.Module | ast.Lambda)
            if name and in_function and _is_listing(module, node.value):
                pairs.setdefault((scope, _index_of(module, node.slice)), {}).setdefault(name, node)
    told: set[tuple[ast.AST, frozenset[str]]] = set()
    for (home, _), paired in pairs.items():
        nodes, both = list(paired.values()), (home, frozenset(paired))
        given = [each.value for each in nodes]
        if len(nodes) < 2 or both in told or _have_lengths_of_their_own(module, nodes):
            continue
        if not _is_sorted_later(module, given):
            told.add(both)
            yield nodes[1], given


def _listed(module: SourceModule, node: ast.expr) -> str:
    """Return what is listed, as it is written: one folder has one order."""
    values = [node, *(each for each in module.definitions(node) if each is not None)]
    inner = [part for each in values for part in walk(each) if isinstance(part, ast.Call)]
    found = [each for each in inner if module.qualify(each.func) in _LISTINGS]
    return ast.unparse(found[0] if found else node)


def _index_of(module: SourceModule, name: ast.Name) -> str:
    """Return a text that is the same for the same places: `i` in `range(3)`, or in one and the same list of them."""
    loops = [
        each.iter
        for above in module.ancestors(name)
        if isinstance(above, ast.ListComp | ast.GeneratorExp)
        for each in above.generators
        if isinstance(each.target, ast.Name) and each.target.id == name.id
    ]
    over = [part for each in loops[:1] for part in walk(each) if isinstance(part, ast.Name)]
    made = sorted({binding.line for each in over for binding in module.resolver.reaching(each)})
    return f"{name.id} in {ast.unparse(loops[0])} of {made}" if loops else name.id


def _have_lengths_of_their_own(module: SourceModule, nodes: list[ast.Subscript]) -> bool:
    """Tell `min(len(a), len(b))` and `max(...)`: sets of two kinds, whose items are no pairs."""
    names = {dotted(each.value) for each in nodes}
    return any(
        len({dotted(part.args[0]) for part in walk(call) if _is_length(part)} & names) > 1
        for call in (*module.calls("min"), *module.calls("max"))
    )


def _is_length(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and dotted(node.func) == "len" and len(node.args) == 1


def _shown(nodes: list[ast.expr]) -> str:
    return " and ".join(ast.unparse(each) for each in nodes[:2])


def _is_listing(module: SourceModule, node: ast.expr) -> bool:
    """Tell what only a listing gives, be it one of a comprehension over it."""
    values = list(module.definitions(node)) if isinstance(node, ast.Name | ast.Attribute) else [node]
    filled = [each for each in values if isinstance(each, ast.List) and not each.elts]
    if filled and len(filled) == len(values):
        return _is_filled_by_listings(module, dotted(node))
    return bool(values) and all(each is not None and _lists(module, each) for each in values)


def _is_filled_by_listings(module: SourceModule, name: str | None) -> bool:
    """Tell whether all that goes into a list at first empty is listed: `paths.extend(glob(...))`."""
    calls = [
        each
        for each in module.method_calls("extend", "append", "insert")
        if isinstance(each.func, ast.Attribute) and dotted(each.func.value) == name
    ]
    return bool(calls) and all(
        getattr(each.func, "attr", "") == "extend" and each.args and _lists(module, each.args[0])
        for each in calls
    )


def _lists(module: SourceModule, value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and dotted(value.func) == "list" and len(value.args) == 1:
        return _lists(module, value.args[0])
    if isinstance(value, ast.ListComp):
        return len(value.generators) == 1 and _lists(module, value.generators[0].iter)
    return isinstance(value, ast.Call) and module.qualify(value.func) in _LISTINGS


def _is_sorted_later(module: SourceModule, nodes: list[ast.expr]) -> bool:
    names = {dotted(each) for each in nodes}
    sorts = [call.func.value for call in module.method_calls("sort") if isinstance(call.func, ast.Attribute)]
    return any(dotted(each) in names for each in sorts)
