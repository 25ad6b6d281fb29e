# SPDX-License-Identifier: Apache-2.0
"""`if step % every: save()`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.cached_questions import mentions_torch
from truestep.doctor.source.live_variables import if_arms
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.value_origins import constant, literal, resolve_expression

FEWEST = 4  # what is done in all but one of fewer steps may be meant
_LEAVES = ast.Continue | ast.Break | ast.Return | ast.Raise


class RemainderNotCompared(SourceCheck):
    """What is to be done every so many steps is done in all others: the remainder is not compared with 0.

    Why: a remainder is true unless it is 0, so models are saved, or a target is updated, at every step but the right ones.

    Bad:
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            if step % 100:  # here
                torch.save(net.state_dict(), "net.pt")

    Good:
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            if step % 100 == 0:
                torch.save(net.state_dict(), "net.pt")

    Fix: compare with 0: `if step % every == 0:`.

    Evidence: 186 repositories: 1 true, 1 false.
    """

    code = "VALUE032"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a test of a loop's counter without `else`, over calls alone."""
        if not module.program.answer(mentions_torch):
            return
        for node in module.all(ast.If):
            asked, body, orelse = if_arms(node)
            steps = _steps_optimizer(module, body)
            test = _remainder_expression(resolve_expression(module, asked), compared=steps)
            if test is None or orelse:
                continue
            counter, every = _counter_name(test.left), literal(module, test.right)
            few = isinstance(every, int) and every < FEWEST
            if counter is None or (not steps and (few or not _has_only_calls(body))):
                continue
            if not _is_counter_incremented(module, node, counter):
                continue
            yield At(
                node, f"{ast.unparse(test)} is true unless it is 0: this is done at all other steps.", RISK
            )


def _remainder_expression(test: ast.expr | None, *, compared: bool) -> ast.BinOp | None:
    """Return the remainder of `step % k`; of `step % k != 0` too, where that is asked for."""
    if compared and isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq):
        test = test.left if len(test.ops) == 1 and constant(test.comparators[0]) == 0 else test
    return test if isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod) else None


def _counter_name(node: ast.expr) -> str | None:
    """Return the name of what counts in `step` and `step + 1`."""
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    return dotted_name(node.left) if is_sum and isinstance(node, ast.BinOp) else dotted_name(node)


def _steps_optimizer(module: SourceModule, body: list[ast.stmt]) -> bool:
    """Tell whether an arm steps an optimizer, and goes on: an accumulation does that in one of k batches."""
    if any(isinstance(each, _LEAVES) for part in body for each in walk(part)):
        return False
    calls = [call.func for part in body for call in module.inside(part, ast.Call)]
    methods = [each for each in calls if isinstance(each, ast.Attribute) and each.attr == "step"]
    return any(module.kind(each.value) == "optimizer" for each in methods)


def _has_only_calls(body: list[ast.stmt]) -> bool:
    """Tell a body that calls something, and leaves no step out."""
    if any(isinstance(each, _LEAVES) for part in body for each in walk(part)):
        return False
    calls = [isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) for each in body]
    return bool(calls) and all(calls)


def _is_counter_incremented(module: SourceModule, node: ast.If, counter: str) -> bool:
    """Tell whether a name is counted up, by a loop around the test or by 1."""
    loops = [each for each in module.ancestors(node) if isinstance(each, ast.For)]
    if any(dotted_name(part) == counter for each in loops for part in walk(each.target)):
        return True
    added = (each for each in module.all(ast.AugAssign) if dotted_name(each.target) == counter)
    return any(
        isinstance(each.op, ast.Add)
        and constant(each.value) == 1
        and not _is_after_counting_loop(module, node, each)
        for each in added
    )


def _is_after_counting_loop(module: SourceModule, node: ast.If, counted: ast.AugAssign) -> bool:
    """Tell a test behind the loop that counts: what is left over of the last window is done there, once."""
    loop = module.loop(counted)
    return (
        loop is not None and loop not in module.ancestors(node) and module.scope(loop) is module.scope(node)
    )
