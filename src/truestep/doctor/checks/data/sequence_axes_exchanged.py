# SPDX-License-Identifier: Apache-2.0
"""Packed with batch_first, unpacked without."""

from collections.abc import Iterator

from truestep.doctor.check import BUG, QUESTION, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, forwards_all, literal

PACK = "torch.nn.utils.rnn.pack_padded_sequence"
UNPACK = "torch.nn.utils.rnn.pad_packed_sequence"


class SequenceAxesExchanged(SourceCheck):
    """Sequences are packed with batch_first=True and unpacked without it, or the other way round.

    Why: the result is (time, batch, features) where (batch, time, features) is expected, silently.

    Bad:
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(packed)  # here

    Good:
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(packed, batch_first=True)

    Fix: the same batch_first in both.

    Evidence: the plain form of row 80 of docs/mistakes.md; 186 repositories, beds B, M: 0 true, 1 debatable, 2
    false.
    """

    code = "DATA010"
    words = ("pad_packed_sequence",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report where all packs of a function agree and its unpack differs."""
        for call in module.calls(UNPACK):
            packs = [
                each
                for each in module.calls(PACK)
                if module.scope(each) is module.scope(call) and not forwards_all(each)
            ]
            modes = {bool(literal(module, argument(each, 2, "batch_first"))) for each in packs}
            mode = argument(call, 1, "batch_first")
            if len(modes) == 1 and not forwards_all(call) and (mode is None or constant(mode) is not None):
                packed = modes.pop()
                if packed != bool(constant(mode)):
                    text = f"Packed with batch_first={packed}, unpacked with batch_first={not packed}."
                    # steps first in and examples first out may be meant: the axes are turned on the way
                    yield At(call, text, BUG if packed else QUESTION)
