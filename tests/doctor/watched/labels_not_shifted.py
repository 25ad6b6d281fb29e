# SPDX-License-Identifier: Apache-2.0
# planted: DATA033 GRAD066
import torch
from dataclasses import dataclass
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 4
    num_train_epochs: int = 2
    learning_rate: float = 5e-4
    max_grad_norm: float = 1.0
    warmup_steps: int = 5


class Out(dict):
    __getattr__ = dict.__getitem__


class LMHead(nn.Module):
    def __init__(self, v=50, d=16):
        super().__init__()
        self.embed = nn.Embedding(v, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.lm_head = nn.Linear(d, v, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, input_ids, attention_mask=None, labels=None):
        h, _ = self.rnn(self.embed(input_ids))
        logits = self.lm_head(h)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(
                logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100
            )
        return Out(loss=loss, logits=logits)


def collate(rows):
    n = max(map(len, rows))
    ids = torch.zeros(len(rows), n, dtype=torch.long)
    lab = torch.full_like(ids, -100)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = r
        lab[i, : len(r)] = r
    return {"input_ids": ids, "attention_mask": (lab != -100).long(), "labels": lab}


class Trainer:
    def __init__(self, model, args, train_dataset, data_collator):
        self.model, self.args, self.ds, self.collator = model, args, train_dataset, data_collator

    def create_optimizer(self):
        decay = [p for n, p in self.model.named_parameters() if p.dim() > 1]
        nodecay = [p for n, p in self.model.named_parameters() if p.dim() <= 1]
        return torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.01}, {"params": nodecay, "weight_decay": 0.0}],
            lr=self.args.learning_rate,
        )

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs).loss / self.args.gradient_accumulation_steps
        loss.backward()
        return loss.detach()

    def train(self):
        dl = DataLoader(
            self.ds, batch_size=self.args.per_device_train_batch_size, shuffle=True, collate_fn=self.collator
        )
        opt = self.create_optimizer()
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / self.args.warmup_steps))
        for epoch in range(self.args.num_train_epochs):
            for step, inputs in enumerate(dl):
                self.training_step(inputs)
                if (step + 1) % self.args.gradient_accumulation_steps == 0 or (step + 1) == len(dl):
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                    opt.step()
                    sched.step()
                    self.model.zero_grad()


torch.manual_seed(0)
Trainer(
    LMHead(),
    TrainingArguments(),
    [torch.randint(1, 50, (int(torch.randint(5, 12, ())),)) for _ in range(200)],
    collate,
).train()
