# SPDX-License-Identifier: Apache-2.0
"""A training_step that returns no loss."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.libraries import gives_loss
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.uses import names_stored


class TrainingStepGivesNothing(SourceCheck):
    """A training_step of Lightning's computes a loss and ends without returning it.

    Why: Lightning takes None for a batch to be skipped: there is no backward and no step, and nothing is learnt.

    Bad:
        class Task(lightning.LightningModule):
            def training_step(self, batch, index):  # here
                x, y = batch
                loss = F.cross_entropy(self.net(x), y)
                self.log("loss", loss)

    Good:
        class Task(lightning.LightningModule):
            def training_step(self, batch, index):
                x, y = batch
                loss = F.cross_entropy(self.net(x), y)
                self.log("loss", loss)
                return loss

    Fix: return the loss; a batch that is skipped on purpose says `return None`.
    """

    code = "GRAD051"
    words = ("training_step",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a method whose end is reached behind a loss, where Lightning does the backward."""
        losses = {module.scope(each) for each in losses_of(module)}
        for function in module.functions:
            if (
                not gives_loss(module, function)
                or function.name != "training_step"
                or function.decorator_list
            ):
                continue
            own = [
                each for each in module.inside(function, ast.Yield, ast.YieldFrom, ast.Call) if _is_own(each)
            ]
            named = any("loss" in each.lower() for each in names_stored(function))
            if own or not (function in losses or named) or not _falls_off(function.body):
                continue
            returns = module.inside(function, ast.Return)
            certain = function in losses and not returns
            text = "training_step() computes a loss and ends without returning it: Lightning skips the batch."
            yield At(function, text, BUG if certain else RISK)


def _is_own(node: ast.AST) -> bool:
    """Tell a generator, and a backward of one's own."""
    called = node.func if isinstance(node, ast.Call) else None
    return called is None or (isinstance(called, ast.Attribute) and called.attr.endswith("backward"))


def _is_other_case(node: ast.stmt, last: ast.stmt) -> bool:
    """Tell `if optimizer_idx == 0: ... return` above `if optimizer_idx == 1:`: one of them is taken."""
    tests = [each.test for each in (node, last) if isinstance(each, ast.If)]
    sides = [ast.unparse(each.left) for each in tests if isinstance(each, ast.Compare)]
    equal = all(isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Eq) for each in tests)
    both = isinstance(last, ast.If) and not last.orelse
    return both and equal and len(set(sides)) == 1 and isinstance(node, ast.If) and not _falls_off(node.body)


def _falls_off(body: list[ast.stmt]) -> bool:
    """Tell whether the end of a block can be reached."""
    match body[-1]:
        case ast.Return() | ast.Raise():
            return False
        case ast.If(body=first, orelse=second) as last:
            if not second and any(_is_other_case(each, last) for each in body[:-1]):
                return _falls_off(first)
            if len(second) == 1 and _is_other_case(last, second[0]):  # elif
                return _falls_off(second[0].body if isinstance(second[0], ast.If) else second)
            return not second or _falls_off(first) or _falls_off(second)
        case ast.With(body=inner) | ast.AsyncWith(body=inner):
            return _falls_off(inner)
        case ast.Try(body=inner, handlers=handlers, orelse=orelse):
            return _falls_off(orelse or inner) or any(_falls_off(each.body) for each in handlers)
    return True
