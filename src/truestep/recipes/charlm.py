# SPDX-License-Identifier: Apache-2.0
"""A language model of characters that learns Python from the standard library's own source.

A recurrent network reads the library's files, every tenth held out. Logged are its bits per character on those, the share of a
bigram model's bits (counts of what follows on each character), and text that it writes.
"""

import math
import os
import sysconfig
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts


@dataclass(frozen=True)
class Config:
    """What can be chosen."""

    epochs: int = 1  # passes over the text
    characters: int = 4_000_000  # of the library, to learn from; a tenth as many are held out at most
    length: int = 128  # characters that are predicted in a row
    batch_size: int = 32  # rows per update
    width: int = 256  # units of the recurrent layer
    lr: float = 4e-3  # highest learning rate
    written: int = 600  # characters of each text that is logged
    temperature: float = 0.7  # of that text; lower is surer
    log_steps: int = 100  # between two looks at it
    micro_batch: int | None = None  # most rows computed at once; the update is the same
    threads: int = 1  # of torch on a CPU


class CharacterModel(nn.Module):
    """Characters (batch, time) to scores of the next one (batch, time, characters), and the state after the last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(CHARACTERS), 64)
        self.recurrent = nn.GRU(64, width, batch_first=True)
        self.head = nn.Linear(width, len(CHARACTERS))

    def forward(self, characters: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read on from `state`."""
        outputs, state = self.recurrent(self.embedding(characters.long()), state)
        return self.head(outputs), state


@torch.no_grad()
def write_text(model: nn.Module, num_characters: int, temperature: float, seed: int) -> str:
    """Return text that the model writes after a line end, one character after another."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    character, state = torch.zeros(1, 1, dtype=torch.long, device=device), None
    written = []
    for _ in range(num_characters):
        scores, state = model(character, state)
        character = ts.sample_logits(scores[:, -1], temperature=temperature, generator=generator)
        written.append(CHARACTERS[int(character)])
    return "".join(written)


def train(run: Any, config: Config) -> None:
    """Train the model; log bits on held-out files and text every so many steps."""
    torch.set_num_threads(config.threads)
    known, held_out = (
        text.unfold(0, config.length + 1, config.length) for text in standard_library_text(config.characters)
    )
    of_bigrams = bigram_bits_per_character(known[:, :-1].flatten(), held_out)
    train = run.data(known, batch_size=config.batch_size, shuffle=True)
    test = run.data(held_out, batch_size=128)
    total = config.epochs * len(train)
    model = run.learner(
        CharacterModel(config.width),
        lambda p: torch.optim.AdamW(p.decayed(0.01), lr=config.lr),
        clip=ts.ClipNorm(1.0),
        schedule=lambda o: ts.warmup_cosine(o, warmup_steps=min(50, total - 1), total_steps=total),
        micro_batch=config.micro_batch,
    )

    def bits_per_character(rows: Tensor) -> Tensor:
        scores, _ = model(rows[:, :-1])
        losses = F.cross_entropy(scores.transpose(1, 2), rows[:, 1:].long(), reduction="none")
        return losses.mean(1) / math.log(2)

    for _ in run.epochs(config.epochs):
        for rows in run.batches(train):
            model.update(bits_per_character, rows)
            if run.step % config.log_steps == 0 or run.step == total:
                test_bits = model.evaluate(bits_per_character, test)
                text = ts.Text(write_text(model.module, config.written, config.temperature, run.step))
                run.log(test_bits=test_bits, share_of_bigram=test_bits / of_bigrams, text=text)


CHARACTERS = "\n" + "".join(map(chr, range(32, 127))) + "\t"
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "encodings", "pydoc_data", "__pycache__"}


def encode_characters(text: str) -> Tensor:
    """Return each character's number; what is not ASCII is escaped, as in \\xe9."""
    table = [CHARACTERS.find(chr(code)) % len(CHARACTERS) for code in range(128)]
    codes = torch.frombuffer(bytearray(text.encode("ascii", "backslashreplace")), dtype=torch.uint8)
    return torch.tensor(table, dtype=torch.uint8)[codes.long()]


def standard_library_text(num_characters: int) -> tuple[Tensor, Tensor]:
    """Return text to learn from and text that is held out: whole files, in an order that is the same everywhere."""
    folder = Path(sysconfig.get_path("stdlib"))
    names: list[Path] = []
    for inside, folders, files in os.walk(folder):
        folders[:] = set(folders) - LEFT_OUT  # thousands of files are there that are not looked at
        names += [Path(inside, file).relative_to(folder) for file in files if file.endswith(".py")]
    names.sort(key=lambda name: zlib.crc32(name.as_posix().encode()))
    paths = [folder / name for name in names]
    held_out = [path for number, path in enumerate(paths) if number % 10 == 0]
    known = [path for number, path in enumerate(paths) if number % 10]
    return encode_characters(_read_first_characters(known, num_characters)), encode_characters(
        _read_first_characters(held_out, num_characters // 10)
    )


def _read_first_characters(paths: list[Path], num_characters: int) -> str:
    texts: list[str] = []
    while paths and sum(map(len, texts)) < num_characters:
        texts.append(paths.pop(0).read_text("utf-8", "replace"))
    return "".join(texts)[:num_characters]


def bigram_bits_per_character(known: Tensor, rows: Tensor) -> float:
    """Return the bits per character that counts of pairs need, one added to each."""
    size = len(CHARACTERS)
    counts = torch.bincount(known[:-1].long() * size + known[1:].long(), minlength=size * size) + 1.0
    bits = -(counts.view(size, size) / counts.view(size, size).sum(1, keepdim=True)).log2()
    return float(bits[rows[:, :-1].long(), rows[:, 1:].long()].mean())
