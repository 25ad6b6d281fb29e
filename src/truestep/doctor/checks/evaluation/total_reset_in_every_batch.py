# SPDX-License-Identifier: Apache-2.0
"""A total that each batch sets back."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, stored_in
from truestep.doctor.source.values import constant


class TotalResetInEveryBatch(SourceCheck):
    """A total is set to 0 within the loop that adds to it, and read behind the loop.

    Why: it holds the last batch alone; the metric that is made of it moves with whichever batch comes last.

    Bad:
        for x, y in loader:
            correct = 0  # here
            correct += (net(x).argmax(1) == y).sum().item()
        print(correct / len(loader.dataset))

    Good:
        correct = 0
        for x, y in loader:
            correct += (net(x).argmax(1) == y).sum().item()
        print(correct / len(loader.dataset))

    Fix: set it to 0 before the loop.

    Evidence: beds C, R: 3 true, 0 false.
    """

    code = "EVAL039"
    words = ("+=",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `x = 0` at the top of a loop's body that also adds to x, where x is read behind the loop alone."""
        for added in module.all(ast.AugAssign) if "torch" in module.text else ():
            loop, name = module.loop(added), _place_of(added.target)
            if not isinstance(loop, ast.For) or name is None or module.scope(loop) is not module.scope(added):
                continue
            resets = [
                each for each in _block(loop.body) if _sets_back(each, name) and each.lineno < added.lineno
            ]
            if len(resets) == 1 and not _leaves(module, loop) and _is_read_behind(module, loop, name, added):
                yield At(resets[0], f"{name!r} is set back in each turn of the loop that adds to it.")


def _block(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block, those under a `with` among them."""
    for each in body:
        yield each
        if isinstance(each, ast.With):
            yield from _block(each.body)


def _sets_back(node: ast.stmt, name: str) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    targets = [each for target in node.targets for each in getattr(target, "elts", [target])]
    values = getattr(node.value, "elts", [node.value] * len(targets))
    for target, value in zip(targets, values, strict=False):
        items = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else []
        parts: dict[str | None, ast.expr] = {_place_of(target): value}
        parts |= {f"{dotted(target)}[{constant(key)!r}]": each for key, each in items}
        if constant(parts.get(name)) in (0, 0.0):
            return True
    return False


def _leaves(module: SourceModule, loop: ast.For) -> bool:
    return bool(module.inside(loop, ast.Break, ast.Return, ast.Yield))


def _is_read_behind(module: SourceModule, loop: ast.For, name: str, added: ast.AugAssign) -> bool:
    """Tell whether a name is read after the loop, in the loop around it too, and nowhere in it."""
    table = name.partition("[")[0]
    reads = [each for each in module.reads(table) if module.scope(each) is module.scope(loop)]
    if table != name:  # an item of a dict: all that asks for it, and what takes the whole dict
        reads = [each for each in reads if _is_read_of(module, each, name)]
    inside = [each for each in reads if loop in module.ancestors(each)]
    others = [
        each
        for each in module.stores
        if _place_of(stored_in(each)) == name and each is not added and loop in module.ancestors(each)
    ]
    end = loop.end_lineno or loop.lineno
    behind = [
        each for each in reads if each.lineno > end and not _is_stored_between(module, loop, name, each)
    ]
    return not inside and len(others) <= 1 and bool(behind)


def _is_read_of(module: SourceModule, table: ast.expr, name: str) -> bool:
    """Tell `stats["n"]` where it is read, and `stats` itself."""
    item = module.parents[table]
    if not isinstance(item, ast.Subscript) or item.value is not table:
        return True
    return _place_of(item) == name and isinstance(item.ctx, ast.Load)


def _is_stored_between(module: SourceModule, loop: ast.For, name: str, read: ast.expr) -> bool:
    end = loop.end_lineno or loop.lineno
    return any(
        _place_of(stored_in(each)) == name
        and end < each.lineno < read.lineno
        and isinstance(each, ast.Assign)
        for each in module.stores
    )


def _place_of(node: ast.AST) -> str | None:
    """Return the text of a name, a chain of attributes, or an item of one under a constant key."""
    if isinstance(node, ast.Subscript) and (key := constant(node.slice)) is not None:
        base = dotted(node.value)
        return f"{base}[{key!r}]" if base is not None else None
    return dotted(node)
