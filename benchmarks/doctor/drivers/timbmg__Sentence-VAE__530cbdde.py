# SPDX-License-Identifier: Apache-2.0
"""PTB on made-up sentences that hold the token <unk>, and SentenceVAE with the loss of train.py, some steps."""

import sys

import torch
from absent import stand_ins
from torch.utils.data import DataLoader

stand_ins("nltk", "nltk.tokenize")


class Words:
    def __init__(self, preserve_case):
        pass

    def tokenize(self, line):
        return line.split()


sys.modules["nltk.tokenize"].TweetTokenizer = Words
import random
from pathlib import Path

random.seed(0)
names = [f"w{n}" for n in range(12)]
for split, count in (("train", 240), ("valid", 40)):
    with Path(f"ptb.{split}.txt").open("w") as file:
        for _ in range(count):
            start = random.randrange(12)
            words = [names[(start + n) % 12] for n in range(random.randrange(4, 9))]
            words[random.randrange(len(words))] = "<unk>"
            file.write(" ".join(words) + "\n")
from model import SentenceVAE
from ptb import PTB

torch.manual_seed(0)
sets = {split: PTB(".", split, True, max_sequence_length=12, min_occ=1) for split in ("train", "valid")}
words = sets["train"]
model = SentenceVAE(
    vocab_size=words.vocab_size,
    sos_idx=words.sos_idx,
    eos_idx=words.eos_idx,
    pad_idx=words.pad_idx,
    max_sequence_length=12,
    embedding_size=16,
    rnn_type="gru",
    hidden_size=32,
    word_dropout=0.5,
    latent_size=8,
    num_layers=1,
    bidirectional=False,
)
nll = torch.nn.NLLLoss(reduction="sum", ignore_index=words.pad_idx)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
for epoch in range(3):
    for batch in DataLoader(words, batch_size=16, shuffle=True):
        logp, mean, logv, z = model(batch["input"], batch["length"])
        target = batch["target"][:, : batch["length"].max()].contiguous().view(-1)
        kl = -0.5 * torch.sum(1 + logv - mean.pow(2) - logv.exp())
        loss = (nll(logp.view(-1, logp.size(2)), target) + min(1, step / 100) * kl) / len(batch["length"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
    print(f"epoch {epoch} loss {loss.item():.4f}")
