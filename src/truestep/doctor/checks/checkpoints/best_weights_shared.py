# SPDX-License-Identifier: Apache-2.0
"""The best weights are kept by their dict, which training goes on to change."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.rewriting import Edits, RewriteError, replaced, text_of


class BestWeightsShared(SourceCheck):
    """The result of state_dict() is kept in a training loop as it is, to be used after it.

    Why: it holds the parameters themselves, no copies: when training ends the best weights are the last.

    Bad:
        best, best_loss = None, math.inf
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            if loss.item() < best_loss:
                best, best_loss = net.state_dict(), loss.item()  # here
        net.load_state_dict(best)

    Good:
        best, best_loss = None, math.inf
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            if loss.item() < best_loss:
                best, best_loss = copy.deepcopy(net.state_dict()), loss.item()
        net.load_state_dict(best)

    Fix: copy.deepcopy(net.state_dict()), or save it to a file at once.
    """

    code = "SAVE013"
    words = ("state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a dict that a name keeps beyond the iteration of a loop that trains."""
        training = _loops_that_train(module)
        for call in module.method_calls("state_dict"):
            target = _kept_under(module, call)
            assert isinstance(call.func, ast.Attribute)
            loops = [each for each in module.ancestors(call) if each in training]
            if target is None or not loops or _is_made_anew(loops[-1], dotted(call.func.value)):
                continue
            if _is_read_after(module, loops[-1], call, target):
                known = module.kind(call.func.value) in ("module", "ddp")
                text = f"{target!r} holds the parameters themselves: each later step changes it."
                yield At(call, text, BUG if known else RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Keep a copy, where the file has the module for it."""
        if "copy" not in module.imported_names:
            raise RewriteError
        return [replaced(module, node, f"copy.deepcopy({text_of(module, node)})")]


def _loops_that_train(module: SourceModule) -> set[ast.AST]:
    """Return the loops of this file in which an optimizer steps, be it in a function that is called."""
    found: set[ast.AST] = set()
    for trace in module.traces:
        for loop in trace.training_loops():
            found |= {frame.node for frame in loop.path if frame.kind == "loop"}
    return found


def _kept_under(module: SourceModule, call: ast.Call) -> str | None:
    """Return the name that keeps the dict itself, be it in a tuple."""
    statement = module.statement(call)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if statement.value is call:
        return dotted(target)
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        pairs = zip(target.elts, statement.value.elts, strict=False)
        return next((dotted(left) for left, right in pairs if right is call), None)
    return None


def _is_read_after(module: SourceModule, loop: ast.AST, call: ast.Call, name: str) -> bool:
    """Tell whether the name is read behind the loop, or in a later iteration; not at once, nor under the same test."""
    scope, end = module.scope(call), getattr(loop, "end_lineno", 0)
    block = module.parents[module.statement(call)]
    if not isinstance(block, ast.If):
        return False  # it is kept anew in each iteration
    reads = [each for each in module.reads(name) if module.scope(each) is scope or name.startswith("self.")]
    return any(each.lineno > end for each in reads if block not in module.ancestors(each))


def _is_made_anew(loop: ast.AST, model: str | None) -> bool:
    """Tell whether the loop makes the model anew: then the dict is the old one's."""
    return any(
        isinstance(each, ast.Name | ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and dotted(each) == model
        for each in walk(loop)
    )
