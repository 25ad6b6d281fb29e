# SPDX-License-Identifier: Apache-2.0
"""The best model, lost at the end of the training."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, names_in, walk
from truestep.doctor.source.saving import Written, writes_in
from truestep.doctor.source.uses import arms, in_same_block, names_stored
from truestep.doctor.source.values import seen_through


class BestOverwrittenByLast(SourceCheck):
    """A branch saves the model when it is the best so far, and the last model is saved to the same path behind it.

    Why: what lies there in the end is the last model: the best one was chosen for nothing, and later scores are of another.

    Bad:
        best = 0.0
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            accuracy = evaluate(net)
            if accuracy > best:
                best = accuracy
                torch.save(net.state_dict(), "model.pt")
        torch.save(net.state_dict(), "model.pt")  # here

    Good:
        best = 0.0
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            accuracy = evaluate(net)
            if accuracy > best:
                best = accuracy
                torch.save(net.state_dict(), "model.pt")
        torch.save(net.state_dict(), "last.pt")

    Fix: save the last model under another name, or load the best one before it is saved.
    """

    code = "SAVE017"
    words = ("torch.save",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a save behind the branch that keeps the best, to its path, of what nothing loaded in between."""
        for node in module.all(ast.If):
            test, body, _ = arms(node)
            if module.loop(node) is None or not _keeps_best(seen_through(module, test), body):
                continue
            for best in _directly(module, node):
                last = _overwriting(module, node, best)
                if last is not None:
                    yield At(
                        last.call, "This overwrites the best model, which was saved to the same path.", RISK
                    )
                    break


def _directly(module: SourceModule, node: ast.If) -> list[Written]:
    """Return what the branch writes, outside of a further loop."""
    loop = module.loop(node)
    return [
        each
        for part in arms(node)[1]
        for each in writes_in(module, part)
        if module.loop(each.call) is loop and module.enclosing(each.call, ast.If) is not None
    ]


def _keeps_best(test: ast.expr | None, body: list[ast.stmt]) -> bool:
    """Tell `if score > best: best = score`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    if not isinstance(test.ops[0], ast.Gt | ast.Lt | ast.GtE | ast.LtE):
        return False
    sides = {dotted(test.left), dotted(test.comparators[0])} - {None}
    return any(
        dotted(target) in sides
        for part in body
        for each in walk(part)
        if isinstance(each, ast.Assign)
        for stored in each.targets
        for target in (stored.elts if isinstance(stored, ast.Tuple) else [stored])
    )


def _overwriting(module: SourceModule, node: ast.If, best: Written) -> Written | None:
    """Return the save that follows on every way to the end: in the same body behind the branch, or behind its loop."""
    loop = module.loop(node)
    blocks: list[ast.AST] = [node, loop] if loop is not None else [node]
    while (outer := module.loop(blocks[-1])) is not None and module.scope(outer) is module.scope(node):
        blocks.append(outer)
    varying = {name for each in blocks[1:] for name in names_stored(each)}
    if varying & set(names_in(best.path)):
        return None
    for block in blocks:
        for later in in_same_block(module, block)[1]:
            if any(_gives_back(module, each, best) for each in walk(later)):
                return None
            for each in (
                writes_in(module, later) if not isinstance(later, ast.If | ast.For | ast.While) else ()
            ):
                if _text(module, each.path) == _text(module, best.path) and _same_owner(module, each, best):
                    return each
    return None


def _text(module: SourceModule, path: ast.expr) -> str:
    """Return a path as it is written, behind a name that stands for it."""
    return ast.dump(seen_through(module, path) or path)


def _same_owner(module: SourceModule, one: Written, other: Written) -> bool:
    """Tell whether both write something of one object."""
    first, second = (set(names_in(seen_through(module, each.what) or each.what)) for each in (one, other))
    return bool(first & second)


def _gives_back(module: SourceModule, node: ast.AST, best: Written) -> bool:
    """Tell what may put the best weights back into the model; a function that makes an object of its own does not."""
    if isinstance(node, ast.Assign):
        return any(dotted(target) in names_in(best.what) for target in node.targets)
    if not isinstance(node, ast.Call) or "load" not in (dotted(node.func) or "").lower():
        return False
    function = module.target(node)
    makes_own = (
        function is not None
        and not isinstance(function, ast.Lambda)
        and any(dotted(each) in ("classmethod", "staticmethod") for each in function.decorator_list)
    )
    return not makes_own
