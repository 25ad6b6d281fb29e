# SPDX-License-Identifier: Apache-2.0
"""EmbeddingNotDivisible."""

from truestep.explainer.explainer import Cause, Crash, Explainer, Match


class EmbeddingNotDivisible(Explainer):
    """An attention layer's width can't be divided by its number of heads.

    Means: each head takes an equal part of embed_dim.

    Raises:
        nn.MultiheadAttention(embed_dim=10, num_heads=3)

    Works:
        nn.MultiheadAttention(embed_dim=12, num_heads=3)

    Fix: choose num_heads so that it divides embed_dim (d_model): 8 for 512, 12 for 768.
    """

    messages = (r"embed_dim must be divisible by num_heads",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        for frame in reversed(crash.frames):
            names = frame.locals()
            width, heads = names.get("embed_dim"), names.get("num_heads")
            if type(width) is int and type(heads) is int and heads > 0:
                below = width - width % heads
                near = f"{below} or {below + heads}" if below else f"{heads}"
                return Cause(
                    f"{width} is no multiple of {heads} heads.",
                    f"take {near} in place of {width}, or other heads.",
                )
        return None
