# SPDX-License-Identifier: Apache-2.0
"""Two totals to which the same is added everywhere."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, stored_in, walk
from truestep.doctor.source.questions import mentions_torch
from truestep.doctor.source.values import seen_through


class TotalsAlwaysEqual(SourceCheck):
    """Two totals start alike, are added the same values and are changed alike everywhere.

    Why: they are always equal: one line was copied and its value not changed, so one of two figures is never counted.

    Bad:
        plain = shaped = 0
        for x, y in loader:
            rewards, shaped_rewards = y.float(), y.float().tanh()
            plain += shaped_rewards.sum().item()  # here
            shaped += shaped_rewards.sum().item()
            rewards.mean()
        print(plain, shaped, net(x).shape)

    Good:
        plain = shaped = 0
        for x, y in loader:
            rewards, shaped_rewards = y.float(), y.float().tanh()
            plain += rewards.sum().item()
            shaped += shaped_rewards.sum().item()
        print(plain, shaped, net(x).shape)

    Fix: add to each its own value, or keep one of them.
    """

    code = "VALUE034"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report two neighbours that add one value to two names, all of whose stores are alike."""
        if not module.of_program(mentions_torch):
            return
        for first in module.all(ast.AugAssign):
            second = _next(module, first)
            value = _value(module, first)
            if second is None or type(first.op) is not type(second.op) or not _is_counted(value):
                continue
            if ast.dump(value) != ast.dump(_value(module, second)):
                continue
            names = dotted(first.target), dotted(second.target)
            if None in names or names[0] == names[1]:
                continue
            stores = [_stores(module, first, name or "") for name in names]
            if stores[0] == stores[1] and len(stores[0]) > 1:
                text = f"{names[0]!r} and {names[1]!r} are given the same values everywhere: they are always equal."
                yield At(first, text, RISK)


def _next(module: SourceModule, node: ast.AugAssign) -> ast.AugAssign | None:
    """Return the neighbour that adds too."""
    body = getattr(module.parents[node], "body", [])
    index = body.index(node) + 1 if isinstance(body, list) and node in body else len(body)
    behind = [each for each in body[index : index + 2] if not isinstance(each, ast.Assign)]
    return behind[0] if behind and isinstance(behind[0], ast.AugAssign) else None


def _value(module: SourceModule, node: ast.Assign | ast.AugAssign) -> ast.expr:
    """Return what is added, be it under a name of its own."""
    return seen_through(module, node.value) or node.value if isinstance(node.value, ast.Name) else node.value


def _is_counted(value: ast.expr) -> bool:
    """Tell a value that is computed or taken out of something from a count."""
    calls = [each for each in walk(value) if isinstance(each, ast.Call)]
    counts = any(
        getattr(each.func, "id", getattr(each.func, "attr", "")) in ("len", "size") for each in calls
    )
    return not counts and (bool(calls) or isinstance(value, ast.Subscript))


def _stores(module: SourceModule, node: ast.AugAssign, name: str) -> list[str]:
    """Return what is stored under a name, wherever the function or the class does it, without the name itself."""
    owner = module.enclosing(node, ast.ClassDef) if name.startswith("self.") else None
    scope: ast.AST = owner or module.scope(node)
    found: list[str] = []
    every: list[ast.Assign | ast.AugAssign] = [
        *module.inside(scope, ast.Assign),
        *module.inside(scope, ast.AugAssign),
    ]
    for each in every:
        targets = each.targets if isinstance(each, ast.Assign) else [stored_in(each)]
        if any(dotted(target) == name for target in targets):
            value = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", "@", ast.unparse(_value(module, each)))
            found.append(f"{type(each).__name__} {value}")
    return sorted(found)
