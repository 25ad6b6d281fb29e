# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers: a small BERT that classifies padded sequences, evaluated each epoch."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)


def samples(count):
    for _ in range(count):
        words = torch.randint(5, 40, (int(torch.randint(3, 10, ())),))
        yield {"input_ids": words, "labels": int(words[0] % 2)}


def collate(batch):
    longest = max(len(each["input_ids"]) for each in batch)
    ids, mask = torch.zeros(2, len(batch), longest, dtype=torch.long)
    for row, each in enumerate(batch):
        ids[row, : len(each["input_ids"])] = each["input_ids"]
        mask[row, : len(each["input_ids"])] = 1
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": torch.tensor([each["labels"] for each in batch]),
    }


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


config = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
arguments = TrainingArguments(
    "out",
    num_train_epochs=3,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    eval_strategy="epoch",
    save_strategy="no",
    report_to="none",
    logging_steps=10,
    learning_rate=1e-3,
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=arguments,
    data_collator=collate,
    train_dataset=list(samples(160)),
    eval_dataset=list(samples(40)),
    compute_metrics=accuracy,
)
trainer.train()
