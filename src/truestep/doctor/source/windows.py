# SPDX-License-Identifier: Apache-2.0
"""The test under which a loop steps, where its value can't be computed: a call, an option, a flag of a library."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.uses import arms
from truestep.doctor.source.values import constant

_METHODS = ("backward", "step", "zero_grad", "unscale_", "update", "clip_grad_norm_")
_WORDS = ("update", "accum", "sync_gradients", "should_step", "do_step", "is_step", "optimizer_step")


def statements_of(module: SourceModule, loop: ast.AST) -> list[tuple[str, ast.Call]]:
    """Return (method, call) for the calls of the protocol that stand right in a loop, in order."""
    found: list[tuple[str, ast.Call]] = []
    for call in (each for each in walk(loop) if isinstance(each, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS and module.loop(call) is loop:
            method, kind = call.func.attr, module.kind(call.func.value)
            if method == "step" and kind not in ("optimizer", "scaler"):
                continue
            if method != "update" or kind == "scaler":
                found.append((method, call))
    return sorted(found, key=lambda each: each[1].lineno)


def window_test(module: SourceModule, call: ast.Call, loop: ast.AST) -> str | None:
    """Return the text of the test above a call that has another answer in some batches, by what it asks for."""
    found = [test for test in _tests_above(module, call, loop) if _asks_for_updates(test)]
    return ast.unparse(found[0]) if found else None


def under_test(module: SourceModule, call: ast.Call, test: str, loop: ast.AST) -> bool:
    """Tell whether a call stands under this test within the loop."""
    return any(ast.unparse(each) == test for each in _tests_above(module, call, loop))


def _tests_above(module: SourceModule, call: ast.Call, loop: ast.AST) -> list[ast.expr]:
    """Return the tests within a loop that hold where a call is made, innermost first."""
    found: list[ast.expr] = []
    inside: ast.AST = call
    for above in module.ancestors(call):
        if above is loop:
            break
        if isinstance(above, ast.If) and inside in arms(above)[1]:
            found.append(arms(above)[0])
        inside = above
    return found


def _asks_for_updates(test: ast.expr) -> bool:
    """Tell a test that counts micro-batches, or calls something that does."""
    names = [(dotted(each) or "").rsplit(".", 1)[-1] for each in walk(test)]
    named = any(word in name for name in names for word in _WORDS)
    return named and not any(isinstance(each, ast.BinOp) or _is_one(each) for each in walk(test))


def _is_one(node: ast.AST) -> bool:
    """Tell `accumulation == 1`: it holds in every batch, or in none."""
    return isinstance(node, ast.Compare) and any(constant(each) == 1 for each in node.comparators)
