# SPDX-License-Identifier: Apache-2.0
"""A total over one loader divided by the length of another."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted

_LOADERS = re.compile(r"(loader|(^|[_.])dl|batches)$", re.IGNORECASE)


class DividedByOtherLength(SourceCheck):
    """A total is summed over the batches of one loader, and divided by the number of batches of another.

    Why: the mean is wrong by the ratio of the two lengths, and moves when either set changes.

    Bad:
        train_loader, valid_loader = DataLoader(x, shuffle=True), DataLoader(x)
        total = 0.0
        for batch in valid_loader:
            total += net(batch).sum().item()
        mean = total / len(train_loader)  # here

    Good:
        train_loader, valid_loader = DataLoader(x, shuffle=True), DataLoader(x)
        total = 0.0
        for batch in valid_loader:
            total += net(batch).sum().item()
        mean = total / len(valid_loader)

    Fix: divide by the length of what the loop goes through.

    Evidence: 186 repositories, beds D, H: 2 true, 1 debatable, 0 false.
    """

    code = "EVAL043"
    words = ("len(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a quotient where every loop that adds to the total goes through one other loader."""
        for node in [*module.all(ast.BinOp), *module.all(ast.AugAssign)] if "torch" in module.text else ():
            total = node.left if isinstance(node, ast.BinOp) else node.target  # type: ignore[attr-defined]
            length = node.right if isinstance(node, ast.BinOp) else node.value  # type: ignore[attr-defined]
            name, other = dotted(total), _loader_measured(module, length)
            if not isinstance(node.op, ast.Div) or name is None or other is None:  # type: ignore[attr-defined]
                continue
            sources = {_source_of(module, each) for each in _added(module, node, name)}
            source = next(iter(sources), None)
            if len(sources) == 1 and source is not None and source != other:
                yield At(
                    node, f"{name!r} is summed over {source}, and divided by the length of {other}.", RISK
                )


def _loader_measured(module: SourceModule, node: ast.expr) -> str | None:
    """Return the loader of `len(loader)`."""
    if isinstance(node, ast.Call) and module.qualify(node.func) == "len" and len(node.args) == 1:
        return dotted(node.args[0]) if _is_loader(module, node.args[0]) else None
    return None


def _is_loader(module: SourceModule, node: ast.expr) -> bool:
    return module.kind(node) == "loader" or bool(_LOADERS.search(dotted(node) or ""))


def _added(module: SourceModule, node: ast.AST, name: str) -> list[ast.AugAssign]:
    """Return what adds to a total of the same function, before it is divided."""
    return [
        each
        for each in module.all(ast.AugAssign)
        if dotted(each.target) == name
        and isinstance(each.op, ast.Add)
        and module.scope(each) is module.scope(node)
    ]


def _source_of(module: SourceModule, added: ast.AugAssign) -> str | None:
    """Return the loader that the loop around a sum goes through, be it by enumerate or a progress bar."""
    loop = module.loop(added)
    source = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(source, ast.Call) and source.args and module.functions.target(source) is None:
        source = source.args[0]
    return dotted(source) if source is not None and _is_loader(module, source) else None
