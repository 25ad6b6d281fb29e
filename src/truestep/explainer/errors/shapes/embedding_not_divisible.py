# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class EmbeddingNotDivisible(Explainer):
    """An attention layer's width can't be divided by its number of heads.

    Means: each head takes an equal part of embed_dim.

    Raises:
        nn.MultiheadAttention(embed_dim=10, num_heads=3)

    Works:
        nn.MultiheadAttention(embed_dim=12, num_heads=3)

    Fix: choose num_heads so that it divides embed_dim (d_model): 8 for 512, 12 for 768.

    Cases:
        otherwise: {width} is no multiple of {heads} heads.
            Fix: take {near} in place of {width}, or other heads.
    """

    messages = (r"embed_dim must be divisible by num_heads",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        for frame in reversed(crash.frames):
            width, heads = frame.locals().get("embed_dim"), frame.locals().get("num_heads")
            if type(width) is int and type(heads) is int and heads > 0:
                below = width - width % heads
                near = f"{below} or {below + heads}" if below else f"{heads}"
                return {"width": str(width), "heads": str(heads), "near": near}
        return {}
