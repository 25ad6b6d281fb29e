# SPDX-License-Identifier: Apache-2.0
"""A collective that one rank alone calls."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, move_before
from truestep.doctor.source.value_origins import constant

COLLECTIVES = functions("asks all ranks")
_RANK = re.compile(r"(^|_|\b)rank$|is_main|is_master|get_rank\(\)$", re.IGNORECASE)


class CollectiveOnOneRank(SourceCheck):
    """A collective (all_reduce, barrier, broadcast, ...) stands under `if rank == 0:`.

    Why: it waits for every rank, and the others never call it: the job hangs until the time-out.

    Bad:
        def report(rank, loss):
            if rank == 0:
                dist.all_reduce(loss)  # here
                print(loss.item() / dist.get_world_size())

    Good:
        def report(rank, loss):
            dist.all_reduce(loss)
            if rank == 0:
                print(loss.item() / dist.get_world_size())

    Fix: let all ranks call it; only what follows is for one rank.

    Evidence: the plain form of row 95 of docs/mistakes.md; corpus: 0 true, 1 false.
    """

    code = "DIST015"
    words = ("distributed", "dist")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call in a branch on the rank whose other arm does not call the same."""
        for name in COLLECTIVES:
            for call in module.calls(name):
                branch = _rank_branch(module, call)
                if branch is not None and not self._is_called_outside_branch(module, branch, call):
                    test = ast.unparse(branch.test)
                    short = name.rsplit(".", 1)[-1]
                    yield At(call, f"{short} waits for all ranks, but only where `{test}` is it called.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Call it before the branch."""
        branch = _rank_branch(module, node)
        if branch is None or branch.body[0] is not module.parents[node] or branch.orelse:
            raise SourceRewriteError
        return move_before(module, node, branch)

    def _is_called_outside_branch(self, module: SourceModule, branch: ast.If, call: ast.Call) -> bool:
        """The other arm calls it too, or what follows a branch that leaves the function."""
        home = module.scope(call)
        name = module.qualify(call.func)
        same = [each for each in module.calls(name or "") if each is not call]
        if _has_group_argument(call):
            return True
        if any(
            branch in module.ancestors(each) and not _is_in_same_branch(module, branch, each, call)
            for each in same
        ):
            return True
        near = [each for each in same if module.scope(each) is home]
        return any(each.lineno > call.lineno or _is_under_rank_test(module, each) for each in near)


def _has_group_argument(call: ast.Call) -> bool:
    """A group of some ranks may well stand under a condition."""
    given = [*(ast.unparse(each) for each in call.args), *(word.arg or "" for word in call.keywords)]
    return any("group" in each for each in given)


def _rank_branch(module: SourceModule, call: ast.Call, depth: int = 2) -> ast.If | None:
    """Return the branch on the rank around a call, or around every call of the function that it stands in."""
    scope = module.scope(call)
    for each in module.ancestors(call):
        if each is scope:
            break
        if isinstance(each, ast.If) and _is_true_on_some_ranks(each.test):
            return each
    around = isinstance(scope, ast.FunctionDef) and depth > 0 and module.functions.callers(scope)
    found = [_rank_branch(module.home(each), each, depth - 1) for each in around or ()]
    return found[0] if found and None not in found else None


def _is_under_rank_test(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a call waits for any test of the rank: `if rank > 0:` is for the others."""
    tests = [each.test for each in module.ancestors(call) if isinstance(each, ast.If)]
    return any(_RANK.search(ast.unparse(part)) for test in tests for part in walk(test) if dotted_name(part))


def _is_true_on_some_ranks(test: ast.expr) -> bool:
    """`rank == 0`, `dist.get_rank() == 0`, `not rank`, `is_main`: true on some ranks alone."""
    if isinstance(test, ast.Compare):
        if isinstance(test.ops[0], (ast.In, ast.NotIn)):
            return len(test.ops) == 1 and bool(_RANK.search(ast.unparse(test.left)))
        others = isinstance(test.ops[0], ast.Gt) and constant(test.comparators[0]) == 0
        single = len(test.ops) == 1 and (others or isinstance(test.ops[0], (ast.Eq, ast.NotEq)))
        return (
            single and bool(_RANK.search(ast.unparse(test.left))) and _is_rank_constant(test.comparators[0])
        )
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_true_on_some_ranks(test.operand)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_is_true_on_some_ranks, test.values))
    named = isinstance(test, (ast.Name, ast.Attribute))
    return named and bool(_RANK.search(ast.unparse(test)))


def _is_rank_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value not in (-1, None)


def _is_in_same_branch(module: SourceModule, branch: ast.If, first: ast.AST, second: ast.AST) -> bool:
    def is_in_body(node: ast.AST) -> bool:
        above = {node, *module.ancestors(node)}
        return any(each in above for each in branch.body)

    return is_in_body(first) is is_in_body(second)
