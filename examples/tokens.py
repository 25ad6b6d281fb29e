# SPDX-License-Identifier: Apache-2.0
"""Token weights: a small recurrent language model on sequences of ragged length, in micro-batches.

    python examples/tokens.py [DIRECTORY]

The loss is averaged over all tokens of the global batch, padding left out, whatever `micro_batch` is: a mean of the
micro-batches' means would count the tokens of short sequences too much.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts

PADDING, VOCABULARY, LENGTH = 0, 12, 16


def sequences(num_sequences: int) -> Tensor:
    """Sequences that count upwards from anywhere in steps of one to three, from 3 to 16 tokens long, padded with 0."""
    first = torch.randint(0, VOCABULARY - 1, (num_sequences, 1))
    step = torch.randint(1, 4, (num_sequences, 1))
    tokens = 1 + (first + step * torch.arange(LENGTH)) % (VOCABULARY - 1)
    lengths = torch.randint(3, LENGTH + 1, (num_sequences, 1))
    return torch.where(torch.arange(LENGTH) < lengths, tokens, PADDING)


class Model(nn.Module):
    """Tokens (batch, time) to scores of the next one (batch, time, vocabulary)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recurrent(self.embedding(tokens))[0])


def main(directory: str = "runs/tokens", epochs: int = 15) -> float:
    run = ts.Run(directory, seed=0)
    train = run.data(sequences(2048), batch_size=128, shuffle=True)
    test = run.data(sequences(512), batch_size=256)
    model = run.learner(
        Model(),
        lambda p: torch.optim.AdamW(p.decayed(0.01), lr=5e-3),
        clip=ts.ClipNorm(1.0),
        schedule=lambda o: ts.warmup_linear(o, warmup_steps=16, total_steps=epochs * len(train)),
        micro_batch=48,  # 48 + 48 + 32 sequences, any number of tokens in each
        name="model",
    )

    def loss(tokens: Tensor) -> ts.Weighted:
        scores, targets = model(tokens[:, :-1]), tokens[:, 1:]
        losses = F.cross_entropy(scores.transpose(1, 2), targets, reduction="none")
        right = (scores.argmax(-1) == targets).float()
        return ts.weighted(losses, (targets != PADDING).float(), token_accuracy=right)

    for _ in run.epochs(epochs):
        for batch in run.batches(train):
            model.update(loss, batch)
        run.log(**{f"test_{name}": value for name, value in model.evaluate(loss, test).items()})

    perplexity = math.exp(model.evaluate(loss, test)["loss"])
    print(f"perplexity {perplexity:.2f} of {VOCABULARY - 1}; see {run.directory}/report.html")
    return perplexity


if __name__ == "__main__":
    main(*sys.argv[1:2])
