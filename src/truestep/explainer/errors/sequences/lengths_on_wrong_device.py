# SPDX-License-Identifier: Apache-2.0
"""LengthsOnWrongDevice."""

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import with_origin
from truestep.explainer.explainer import Cause, Explainer, Match


class LengthsOnWrongDevice(Explainer):
    """The lengths of a packed sequence are not a one-dimensional int64 tensor on the CPU.

    Means: packing reads the lengths on the host, whatever device the sequences are on.

    Raises:
        words, lengths = torch.zeros(2, 3, 1), torch.ones(3, dtype=torch.int64, device="meta")
        nn.utils.rnn.pack_padded_sequence(words, lengths)

    Works:
        words, lengths = torch.zeros(2, 3, 1), torch.tensor([2, 2, 1])
        nn.utils.rnn.pack_padded_sequence(words, lengths)

    Fix: write pack_padded_sequence(x, lengths.cpu(), ...): leave the lengths out when the batch is moved to the GPU.
    """

    messages = (r"'lengths' argument should be a 1D CPU int64 tensor, but got (?P<given>.*?tensor)",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        named = [
            each for each in crash.tensors if each.value.dim() == 1 and not each.value.is_floating_point()
        ]
        return Cause(
            f"the lengths are a {match['given']}{f': {with_origin(crash, named[0])}' if named else ''}."
        )
