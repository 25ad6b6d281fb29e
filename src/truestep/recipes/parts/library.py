# SPDX-License-Identifier: Apache-2.0
"""The source of Python's standard library as numbers, and what a bigram model makes of it."""

import os
import sysconfig
import zlib
from pathlib import Path

import torch
from torch import Tensor

CHARACTERS = "\n" + "".join(map(chr, range(32, 127))) + "\t"
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "encodings", "pydoc_data", "__pycache__"}


def encode_characters(text: str) -> Tensor:
    """Return each character's number; what is not ASCII is escaped, as in \\xe9."""
    table = [CHARACTERS.find(chr(code)) % len(CHARACTERS) for code in range(128)]
    codes = torch.frombuffer(bytearray(text.encode("ascii", "backslashreplace")), dtype=torch.uint8)
    return torch.tensor(table, dtype=torch.uint8)[codes.long()]


def library_text(num_characters: int) -> tuple[Tensor, Tensor]:
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
    return encode_characters(_read(known, num_characters)), encode_characters(
        _read(held_out, num_characters // 10)
    )


def _read(paths: list[Path], num_characters: int) -> str:
    texts: list[str] = []
    while paths and sum(map(len, texts)) < num_characters:
        texts.append(paths.pop(0).read_text("utf-8", "replace"))
    return "".join(texts)[:num_characters]


def bigram_bits(known: Tensor, rows: Tensor) -> float:
    """Return the bits per character that counts of pairs need, one added to each."""
    size = len(CHARACTERS)
    counts = torch.bincount(known[:-1].long() * size + known[1:].long(), minlength=size * size) + 1.0
    bits = -(counts.view(size, size) / counts.view(size, size).sum(1, keepdim=True)).log2()
    return float(bits[rows[:, :-1].long(), rows[:, 1:].long()].mean())
