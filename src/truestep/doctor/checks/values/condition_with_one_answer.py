# SPDX-License-Identifier: Apache-2.0
"""`mode == "a" or "b"`, and other tests whose answer is known."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, node_text, replace_node
from truestep.doctor.source.value_origins import constant


class ConditionWithOneAnswer(SourceCheck):
    """A condition has the same answer whatever its variables are.

    Why: one branch is taken always, so a way of training that was asked for is never gone.

    Bad:
        optimizer = "adamw"
        if optimizer == "sgd" or "momentum":  # here
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
        else:
            opt = torch.optim.AdamW(net.parameters(), lr=1e-3)

    Good:
        optimizer = "adamw"
        if optimizer in ("sgd", "momentum"):
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
        else:
            opt = torch.optim.AdamW(net.parameters(), lr=1e-3)

    Fix: compare with each value, or ask whether it is among them.

    Evidence: 186 repositories, beds A, B, D, E, F, H, I, K, P, Q, V, Y: 30 true, 1 false.
    """

    code = "VALUE017"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a text that stands beside a comparison in `or`, and a list that is looked for in a value."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.BoolOp):
            alone = next((each for each in node.values[1:] if _is_nonempty_string(each)), None)
            beside = any(isinstance(each, ast.Compare) for each in node.values)
            if (
                alone is not None
                and beside
                and isinstance(node.op, ast.Or)
                and _is_used_as_condition(module, node)
            ):
                text = f"{ast.unparse(alone)} alone is true: the test always holds."
                yield At(node, text, ADVICE if _is_last_branch_of_known_values(module, node) else BUG)
        for compare in module.all(ast.Compare):
            within = len(compare.ops) == 1 and isinstance(compare.ops[0], (ast.In, ast.NotIn))
            options = compare.left.elts if isinstance(compare.left, ast.List) else []
            texts = bool(options) and all(_is_nonempty_string(each) for each in options)
            if within and texts and isinstance(compare.comparators[0], (ast.Name, ast.Attribute)):
                text = ast.unparse(compare.comparators[0])
                yield At(
                    compare, f"A list is no part of {text}: what is looked for stands to the left of `in`."
                )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Ask whether the value is among all of them."""
        if isinstance(node, ast.Compare):
            raise SourceRewriteError
        first, *others = node.values
        single = isinstance(first, ast.Compare) and len(first.ops) == 1 and isinstance(first.ops[0], ast.Eq)
        if not single or not all(_is_nonempty_string(each) for each in [*first.comparators, *others]):
            raise SourceRewriteError
        options = ", ".join(node_text(module, each) for each in [*first.comparators, *others])
        return [replace_node(module, node, f"{node_text(module, first.left)} in ({options})")]


def _is_nonempty_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value)


def _is_used_as_condition(module: SourceModule, node: ast.BoolOp) -> bool:
    """Tell a test from a default: `name = given or "net"`."""
    inside: ast.AST = node
    outer = module.parents[node]
    while isinstance(outer, (ast.BoolOp, ast.UnaryOp)):
        inside, outer = outer, module.parents[outer]
    return isinstance(outer, (ast.If, ast.While, ast.IfExp, ast.Assert)) and outer.test is inside


def _is_last_branch_of_known_values(module: SourceModule, node: ast.BoolOp) -> bool:
    """Tell the last arm of a chain that has no `else`, where each value that the rest of the file knows is of the chain."""
    last = module.parents[node]
    if not isinstance(last, ast.If) or last.orelse:
        return False
    first: ast.AST = last
    while isinstance(above := module.parents[first], ast.If) and first in above.orelse:
        first = above
    asked: dict[bool, set[object]] = {False: set(), True: set()}  # by whether it is of the chain
    subject = next(ast.dump(each.left) for each in node.values if isinstance(each, ast.Compare))
    for each in module.all(ast.Compare):
        if ast.dump(each.left) == subject and isinstance(each.ops[0], ast.Eq):
            asked[first in module.ancestors(each)].add(constant(each.comparators[0]))
    own = {constant(each) for each in node.values if _is_nonempty_string(each)}
    return own <= asked[False] <= asked[True] | own
