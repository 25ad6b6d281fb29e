# SPDX-License-Identifier: Apache-2.0
"""Attention that sees the padding and none of the words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

STEPS = 3  # so many show the same


class PaddingSeenAlone(Watcher):
    """Attention is given a mask that leaves out all words of the batch, and none of its padding.

    Why: True, or minus infinity, means that a place is left out: each word attends to the padding alone.

    Bad:
        embed, attention = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        for length in range(3, 7):
            words = torch.randint(1, 9, (4, 8))
            words[::2, length:] = 0
            words[1::2, 7:] = 0
            states = embed(words)
            out, _ = attention(states, states, states, key_padding_mask=words != 0)  # here

    Good:
        embed, attention = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        for length in range(3, 7):
            words = torch.randint(1, 9, (4, 8))
            words[::2, length:] = 0
            words[1::2, 7:] = 0
            states = embed(words)
            out, _ = attention(states, states, states, key_padding_mask=words == 0)

    Fix: key_padding_mask = (words == PADDING).
    """

    code = "DATA042"

    def __init__(self) -> None:
        self.words: list[Tensor] = []  # that layers looked up since the last step
        self.seen: dict[Place, int] = {}

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Remember symbols that are looked up; compare the mask of attention with where they end."""
        if origin.operation == "embedding":
            self.words = [*self.words[-3:], *(each for each in given[:1] if each.dim() == 2)]
        if origin.operation != "multi_head_attention_forward" or not history.in_window:
            return
        import torch

        from truestep.doctor.runtime.padding import padding_of

        for words in self.words:
            ends = padding_of(words)
            if ends is None:
                continue
            for mask in (each for each in given if each.shape == words.shape):
                if bool(torch.all(_left_out(mask) ^ ends.to(mask.device))):
                    self.seen[origin.place] = self.seen.get(origin.place, 0) + 1
                    if self.seen[origin.place] == STEPS:
                        share = float(ends.float().mean())
                        text = f"The mask leaves out every word, and none of the padding ({share:.0%} of the places)."
                        yield Observation(origin.place, text, BUG, {"share_of_padding": share})


def _left_out(mask: Tensor) -> Tensor:
    """Return where a mask of attention's leaves a place out: it may have been made minus infinity by now."""
    return mask.isneginf() if mask.is_floating_point() else mask.bool()
