# SPDX-License-Identifier: Apache-2.0
"""`best = train(...)`, and then `best = "rl"`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.questions import mentions_torch
from truestep.doctor.source.uses import in_same_block, names_read
from truestep.doctor.source.values import constant

_SHOWS = ("print", "info", "debug", "log", "warning", "write")


class ReplacedByConstant(SourceCheck):
    """A value is computed, or read from the options, and a constant is put in its place before anything uses it.

    Why: whatever was computed or asked for has no effect: a line of a trial was left in.

    Bad:
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.1)
        lr = parser.parse_args([]).lr
        print(f"training with {lr}")
        lr = 0.003  # here
        opt = torch.optim.SGD(net.parameters(), lr=lr)

    Good:
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.1)
        lr = parser.parse_args([]).lr
        print(f"training with {lr}")
        opt = torch.optim.SGD(net.parameters(), lr=lr)

    Fix: delete the assignment of the constant.
    """

    code = "VALUE036"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a text or number that replaces, in the same block, what nothing but a message has read."""
        if not module.of_program(mentions_torch) or not module.path.endswith((".py", "<text>")):
            return
        for node in module.all(ast.Assign):
            name = node.targets[0] if len(node.targets) == 1 else None
            if isinstance(name, ast.Name) and _is_chosen(node.value):
                before, _ = in_same_block(module, node)
                made = _made_before(before, name.id)
                if (
                    made
                    and not _is_used_between(before, name.id, made)
                    and _is_read_after(module, node, name.id)
                ):
                    yield At(node, f"{name.id!r} was computed before, and is replaced by a constant.", RISK)


def _is_chosen(value: ast.expr) -> bool:
    """Tell a text or number from where a count starts, or what says that there is nothing."""
    found = constant(value)
    return isinstance(found, str | int | float) and found not in ("", 0, 1, -1)


def _made_before(before: list[ast.stmt], name: str) -> list[ast.Assign]:
    """Return the last statement's assignments of something computed to a name, if all that it assigns is so."""
    for statement in reversed(before):
        stores = [each for each in walk(statement) if isinstance(each, ast.Assign) and _stores(each, name)]
        if stores:
            computed = [each for each in stores if _is_computed(each.value)]
            return computed if len(computed) == len(stores) else []
    return []


def _stores(node: ast.Assign, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in node.targets)


def _is_computed(value: ast.expr) -> bool:
    return isinstance(value, ast.Call | ast.Attribute | ast.Subscript | ast.BinOp)


def _is_used_between(before: list[ast.stmt], name: str, made: list[ast.Assign]) -> bool:
    """Tell whether anything but a message reads the value."""
    start = next(i for i, each in enumerate(before) if any(part is made[0] for part in walk(each)))
    inside = [
        each for each in walk(before[start]) if isinstance(each, ast.stmt) and each is not before[start]
    ]
    later = [each for each in before[start + 1 :] if not _is_message(each)]
    return any(name in names_read(each) for each in [*inside, *later])


def _is_message(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    called = call.func if isinstance(call, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", "")) in _SHOWS


def _is_read_after(module: SourceModule, node: ast.Assign, name: str) -> bool:
    scope = module.scope(node)
    return any(each.lineno > node.lineno and module.scope(each) is scope for each in module.reads(name))
