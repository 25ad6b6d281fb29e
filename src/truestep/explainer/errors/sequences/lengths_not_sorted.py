# SPDX-License-Identifier: Apache-2.0
"""LengthsNotSorted."""

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause, Explainer, Match


class LengthsNotSorted(Explainer):
    """Sequences are packed whose lengths are not in decreasing order, or not positive.

    Means: pack_padded_sequence expects the longest first, unless enforce_sorted=False; a length of 0 can't be packed.

    Raises:
        words, lengths = torch.zeros(3, 2, 1), torch.tensor([1, 3])
        nn.utils.rnn.pack_padded_sequence(words, lengths)

    Works:
        words, lengths = torch.zeros(3, 2, 1), torch.tensor([1, 3])
        nn.utils.rnn.pack_padded_sequence(words, lengths, enforce_sorted=False)

    Fix: pass enforce_sorted=False, which sorts inside and puts the outputs back in order; leave out empty sequences.
    """

    messages = (
        r"`?lengths`? array (?:must|has to) be sorted in decreasing order",
        r"Length of all samples has to be greater than 0, but found an element in 'lengths' that is (?P<zero><= 0)",
    )
    checks = ("DATA011",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        if match.groupdict().get("zero"):
            return Cause(
                "a sequence of the batch is empty.",
                "leave empty sequences out, or give them one padding step.",
            )
        return None
