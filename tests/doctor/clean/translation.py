# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(0)
PAD, BEGIN, END = 0, 1, 2


class Translator(nn.Module):
    def __init__(self, words=20, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        self.places = nn.Embedding(16, width)
        self.transformer = nn.Transformer(width, 2, 1, 1, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def embedded(self, words):
        return self.embed(words) + self.places(torch.arange(words.size(1)))

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1)).isinf()
        hidden = self.transformer(
            self.embedded(source),
            self.embedded(target),
            tgt_mask=mask,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )
        return self.head(hidden)

    @torch.inference_mode()
    def translate(self, source, longest=6):
        words = torch.full((len(source), 1), BEGIN)
        for _ in range(longest):
            following = self(source, words)[:, -1].argmax(-1, keepdim=True)
            words = torch.cat([words, following], dim=1)
        return words


def batches(pairs, size):
    for start in range(0, len(pairs), size):
        sources, targets = zip(*pairs[start : start + size], strict=True)
        yield pad_sequence(sources, True, PAD), pad_sequence(targets, True, PAD)


def make_pairs(count):
    for _ in range(count):
        words = torch.randint(3, 20, (int(torch.randint(3, 7, ())),))
        yield words, torch.cat([torch.tensor([BEGIN]), words.flip(0), torch.tensor([END])])


def main():
    train_pairs, val_pairs = list(make_pairs(128)), list(make_pairs(32))
    model = Translator()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=3 * 8)
    for _epoch in range(3):
        model.train()
        for source, target in batches(train_pairs, 16):
            logits = model(source, target[:, :-1])
            loss = criterion(logits.reshape(-1, logits.size(-1)), target[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        losses = []
        with torch.no_grad():
            for source, target in batches(val_pairs, 16):
                logits = model(source, target[:, :-1])
                losses.append(criterion(logits.flatten(0, 1), target[:, 1:].flatten()).item())
        print(sum(losses) / len(losses), model.translate(val_pairs[0][0].unsqueeze(0)).tolist())


if __name__ == "__main__":
    main()
