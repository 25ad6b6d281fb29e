# SPDX-License-Identifier: Apache-2.0
"""Padded targets that count."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.losses import losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, names_in
from truestep.doctor.source.values import argument, constant

_TARGETS = re.compile(r"(^|_)(labels?|targets?|tags?|ys?|trg|tgt)(_|$)", re.IGNORECASE)
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
    """

    code = "LOSS026"
    words = ("pad_sequence",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report padding of targets by another value than -100 in a file where no loss leaves one out."""
        losses = list(losses_of(module, "cross_entropy", "nll_loss"))
        leaves_out = any(word.arg == "ignore_index" for word in module.all(ast.keyword))
        masked = any(reduction_of(module, each) == "none" for each in losses)
        if not losses or leaves_out or masked or {"mask", "pack_padded_sequence"} & module.identifiers:
            return
        for call in module.calls("torch.nn.utils.rnn.pad_sequence"):
            value = argument(call, 2, "padding_value")
            if (value is None or constant(value) != IGNORED) and self._reaches_loss(module, call, losses):
                yield At(call, "Padded targets count in the loss: nothing says to ignore them.", RISK)

    def _reaches_loss(self, module: SourceModule, call: ast.Call, losses: list[ast.Call]) -> bool:
        """By the name that it is given: what is padded in a collate function is unpacked elsewhere."""
        statement = module.statement(call)
        names = [dotted(each) or "" for each in getattr(statement, "targets", [])]
        if not any(_TARGETS.search(name) for name in names):
            return False
        given = [argument(each, 1, "target") for each in losses]
        return any(
            each is not None and any(_TARGETS.search(word) for word in names_in(each)) for each in given
        )
