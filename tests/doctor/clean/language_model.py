# SPDX-License-Identifier: Apache-2.0
import math

import torch
from torch import nn

torch.manual_seed(0)


class LanguageModel(nn.Module):
    def __init__(self, words=30, width=16):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, num_layers=2, dropout=0.2, batch_first=True)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.encoder.weight  # tied
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words, state=None):
        output, state = self.rnn(self.drop(self.encoder(words)), state)
        return self.decoder(self.drop(output)), state


def repackage(state):
    return tuple(each.detach() for each in state)


def evaluate(model, text, criterion):
    model.eval()
    total, state = 0.0, None
    with torch.no_grad():
        for start in range(0, text.size(1) - 1, 10):
            part = text[:, start : start + 11]
            logits, state = model(part[:, :-1], state)
            total += criterion(logits.flatten(0, 1), part[:, 1:].flatten()).item()
    return total


def train_epoch(model, text, criterion, optimizer):
    model.train()
    state = None
    for start in range(0, text.size(1) - 1, 10):
        part = text[:, start : start + 11]
        state = repackage(state) if state is not None else None
        optimizer.zero_grad()
        logits, state = model(part[:, :-1], state)
        loss = criterion(logits.flatten(0, 1), part[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()


def main():
    text, held_out = torch.randint(30, (8, 81)), torch.randint(30, (8, 41))
    model, criterion = LanguageModel(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.25)
    best = math.inf
    for _epoch in range(4):
        train_epoch(model, text, criterion, optimizer)
        loss = evaluate(model, held_out, criterion)
        schedule.step(loss)
        best = min(best, loss)


if __name__ == "__main__":
    main()
