# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


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

    Cases:
        `greater than 0`: a sequence of the batch is empty.
            Fix: leave empty sequences out, or give them one padding step.
    """

    messages = (
        r"`?lengths`? array (?:must|has to) be sorted in decreasing order",
        r"Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0",
    )
