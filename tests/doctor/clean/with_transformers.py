# SPDX-License-Identifier: Apache-2.0
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)


class Sentences(Dataset):
    def __init__(self, start, num):
        self.start, self.num = start, num

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        words = torch.randint(50, (12,), generator=torch.Generator().manual_seed(self.start + index))
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words[0] % 2}


torch.manual_seed(0)
config = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    num_labels=2,
)
arguments = TrainingArguments(
    "out",
    num_train_epochs=2,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=1e-3,
    warmup_steps=4,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=Sentences(0, 96),
    eval_dataset=Sentences(96, 32),
)
trainer.remove_callback(PrinterCallback)  # it prints how long it took
trainer.model_accepts_loss_kwargs = False  # this model leaves the division by accumulated batches to nobody
trainer.train()
