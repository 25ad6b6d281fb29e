# SPDX-License-Identifier: Apache-2.0
"""EmbeddingNotDivisible."""

from truestep.explainer.explainer import Explainer


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
