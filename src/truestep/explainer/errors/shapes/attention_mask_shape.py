# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class AttentionMaskShape(Explainer):
    """An attention mask has another shape than the scores that it masks.

    Means: attn_mask is (queries, keys), or (batch * heads, queries, keys); key_padding_mask is (batch, keys).

    Raises:
        attention = nn.MultiheadAttention(4, 2)
        words = torch.zeros(3, 1, 4)
        attention(words, words, words, attn_mask=torch.zeros(2, 2))

    Works:
        attention = nn.MultiheadAttention(4, 2)
        words = torch.zeros(3, 1, 4)
        attention(words, words, words, attn_mask=torch.zeros(3, 3))

    Fix: make the mask from the lengths of this batch, and look at batch_first: without it nn.MultiheadAttention and
    nn.Transformer read (length, batch, features).

    Cases:
        otherwise: the mask is ({given}), ({wanted}) is needed{and_shapes}.
    """

    messages = (
        r"The shape of the (?P<rank>\dD) attn_mask is torch\.Size\(\[(?P<given>[\d, ]+)\]\), but should be \((?P<wanted>[\d, ]+)\)",
        r"key_padding_mask: expected shape of \((?P<wanted>[\d, ]+)\), got torch\.Size\(\[(?P<given>[\d, ]+)\]\)",
    )
