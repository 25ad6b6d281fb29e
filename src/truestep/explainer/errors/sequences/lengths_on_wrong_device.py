# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer


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

    Cases:
        otherwise: the lengths are a {given}{and_tensor}.
    """

    messages = (r"'lengths' argument should be a 1D CPU int64 tensor, but got (?P<given>.*?tensor)",)

    def concerns(self, tensor: Any) -> bool:
        return tensor.dim() == 1 and not tensor.is_floating_point()
