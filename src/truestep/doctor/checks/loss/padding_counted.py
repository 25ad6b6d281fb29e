# SPDX-License-Identifier: Apache-2.0
"""Padded targets that count."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.collating import batch_origins
from truestep.doctor.source.losses import constructor_of, losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, names_in
from truestep.doctor.source.questions import own_identifiers
from truestep.doctor.source.values import argument, is_call_of, literal

_TARGETS = re.compile(r"(^|_)(labels?|targets?|tags?|ys?|trg|tgt)(_|$)", re.IGNORECASE)
_PAD = "torch.nn.utils.rnn.pad_sequence"
_TEXT = "Padded targets count in the loss: nothing says to ignore them."
IGNORED = -100  # what cross entropy leaves out unless told otherwise


class PaddingCounted(SourceCheck):
    """Targets are padded with a class number, and cross entropy has no ignore_index.

    Why: every padded place counts as an example of that class: the loss looks small, and the model
    learns to pad.

    Bad:
        from torch.nn.utils.rnn import pad_sequence
        targets = pad_sequence(tags, batch_first=True)  # here
        loss = F.cross_entropy(net(x).transpose(1, 2), targets)

    Good:
        from torch.nn.utils.rnn import pad_sequence
        targets = pad_sequence(tags, batch_first=True, padding_value=-100)
        loss = F.cross_entropy(net(x).transpose(1, 2), targets)

    Fix: pad with -100, or give the loss ignore_index=PADDING.

    Evidence: the plain form of row 50 of docs/mistakes.md.
    """

    code = "LOSS026"
    words = ("pad_sequence",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report padding of targets by another value than -100 where the loss leaves none out.

        A mask of something else, such as attention's, says nothing about the loss.
        """
        told: set[ast.AST] = set()
        for loss in losses_of(module, "cross_entropy", "nll_loss"):
            target = argument(loss, 1, "target")
            if target is None or _leaves_out(module, loss):
                continue
            origins = batch_origins(module, target)
            made = origins.made if origins.is_whole else _by_name(module, target)
            for call in made:
                if is_call_of(module, call, _PAD) and _counts(module, call) and call not in told:
                    told.add(call)
                    yield At(self._place(module, call, loss), _TEXT, RISK)

    def _place(self, module: SourceModule, padding: ast.expr, loss: ast.Call) -> ast.AST:
        """Return the padding of targets; the loss where the inputs are padded so too, as of a language model."""
        here = module.home(padding) is module
        return padding if here and any(_TARGETS.search(each) for each in _names_of(module, padding)) else loss


def _leaves_out(module: SourceModule, loss: ast.Call) -> bool:
    """Tell a loss that is told what to ignore, weighs the classes, or is masked behind its call."""
    made = constructor_of(module, loss) or loss
    words = {word.arg for word in made.keywords}
    return bool(words & {"ignore_index", "weight", None}) or reduction_of(module, loss) == "none"


def _counts(module: SourceModule, padding: ast.expr) -> bool:
    """Tell padding by another value than the one that is ignored."""
    assert isinstance(padding, ast.Call)
    value = argument(padding, 2, "padding_value")
    ignored = literal(module, value) == IGNORED or (
        value is not None and "ignore" in ast.unparse(value).lower()
    )
    return not ignored


def _names_of(module: SourceModule, padding: ast.expr) -> list[str]:
    return [dotted(each) or "" for each in getattr(module.statement(padding), "targets", [])]


def _by_name(module: SourceModule, target: ast.expr) -> list[ast.expr]:
    """Return what is padded under the name of targets, for a loss's target that has come a way out of sight."""
    identifiers = own_identifiers(module)
    words = {word.arg for word in module.all(ast.keyword)}
    if not any(_TARGETS.search(word) for word in names_in(target)) or "ignore_index" in words:
        return []
    if "pack_padded_sequence" in identifiers or _picked(module):
        return []
    calls: list[ast.expr] = [*module.calls(_PAD)]
    return [each for each in calls if any(_TARGETS.search(name) for name in _names_of(module, each))]


def _picked(module: SourceModule) -> bool:
    """Tell whether a mask picks or fills targets anywhere in the file."""
    indices = [each.slice for each in module.all(ast.Subscript) if not isinstance(each.slice, ast.Constant)]
    filled = {"masked_fill", "masked_fill_", "masked_select", "where"} & own_identifiers(module)
    return bool(filled) or any("mask" in ast.unparse(each) for each in indices)
