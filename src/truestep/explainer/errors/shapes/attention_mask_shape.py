# SPDX-License-Identifier: Apache-2.0
"""AttentionMaskShape."""

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import shapes_on_line
from truestep.explainer.explainer import Cause, Explainer, Match


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
    """

    messages = (
        r"The shape of the (?P<rank>\dD) attn_mask is torch\.Size\(\[(?P<given>[\d, ]+)\]\), but should be \((?P<wanted>[\d, ]+)\)",
        r"key_padding_mask: expected shape of \((?P<wanted>[\d, ]+)\), got torch\.Size\(\[(?P<given>[\d, ]+)\]\)",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        shown = shapes_on_line(crash)
        return Cause(
            f"the mask is ({match['given']}), ({match['wanted']}) is needed{f': {shown}' if shown else ''}."
        )
