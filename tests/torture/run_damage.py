# SPDX-License-Identifier: Apache-2.0
"""Thousands of ways in which a file of a run is not what was written, and what a restart and a report make of them.

The damage may be seen and told, or do no harm: the run then ends with the bits of an undisturbed one. Nothing else is right: no raw
exception, no endless wait, no other end without a word.
"""

import hashlib
import io
import logging
import os
import random
import shutil
import signal
import socket
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

import truestep as ts
from truestep.report import render_report

Dice = random.Random
SECONDS = 20  # for one restart and report of a fifth of a second
POINTS = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
ELSEWHERE = b"somebody else's file\n"


def go_on(directory: Path, epochs: int) -> str:
    """Train on to so many epochs, and return a digest of the weights, the state and the logged losses."""
    saving = ts.Saving(every_steps=2, background=False)
    with ts.Run(directory, config={"lr": 0.1}, saving=saving, log_every=1, doctor=False) as run:
        torch.manual_seed(0)
        net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), name="net")
        data = run.data(POINTS, batch_size=4, shuffle=True)
        for epoch in run.epochs(epochs):
            for batch in run.batches(data):
                net.update(lambda b: net(b).squeeze(1).square(), batch)
            run.log(error=1.0 / (epoch + 1))
        run.state["done"] = True
    found = hashlib.sha256()
    for tensor in net.parameters():
        found.update(tensor.detach().numpy().tobytes())
    found.update(f"{run.step} {run.epoch}".encode())
    return found.hexdigest()


# ------------------------------------------------------------------ one file becomes something else


def flip(dice: Dice, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def cut(dice: Dice, data: bytes) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def grow(dice: Dice, data: bytes) -> bytes:
    return data + dice.choice(
        [b"\0" * 5000, b"\n", b"{", b"[" * 100_000, dice.randbytes(300), data, b"\xff\xfe"]
    )


def scramble(dice: Dice, data: bytes) -> bytes:
    start = dice.randrange(len(data) + 1)
    return data[:start] + dice.randbytes(dice.randint(1, 60)) + data[start + dice.randint(0, 60) :]


def another_number(dice: Dice, data: bytes) -> bytes:
    digits = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return data
    at = dice.choice(digits)
    return (
        data[:at]
        + dice.choice([b"-1", b"1e999", b"9" * 400, b"9" * 5000, b"NaN", b"null", b'"x"', b"[]"])
        + data[at + 1 :]
    )


def another_text(dice: Dice, data: bytes) -> bytes:
    return data.replace(
        b'"', dice.choice([b'"\\ud800', b'"\\u001b[2J', b'"\\u0000', b""]), dice.randint(1, 4)
    )


def another_json(dice: Dice, data: bytes) -> bytes:
    texts = [
        b"null",
        b"[]",
        b"{}",
        b"3",
        b'"x"',
        b"[" * 100_000,
        b'{"findings": [5]}',
        b'{"findings": {"a": 1}}',
        b"[[]]",
        b"",
    ]
    return dice.choice(texts) + dice.choice([b"", b"\n"])


CHANGES: list[Callable[[Dice, bytes], bytes]] = [
    flip,
    flip,
    cut,
    grow,
    scramble,
    another_number,
    another_text,
    another_json,
]


def put_something_else(dice: Dice, path: Path, elsewhere: Path) -> str:
    """Put what is no regular file in the place of one, or nothing at all."""
    path.unlink()
    kind = dice.choice(
        ["nothing", "folder", "full folder", "fifo", "link", "loop", "dangling", "socket", "device"]
    )
    if kind in ("folder", "full folder"):
        path.mkdir()
        if kind == "full folder":
            (path / "inside").touch()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind in ("link", "loop", "dangling", "device"):
        targets = {
            "link": elsewhere,
            "loop": path,
            "dangling": path.with_name("nowhere"),
            "device": Path("/dev/zero"),
        }
        path.symlink_to(targets[kind])
    elif kind == "socket":
        folder = os.open(path.parent, os.O_DIRECTORY)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
    return kind


def damage(dice: Dice, directory: Path, elsewhere: Path) -> str:
    """Damage one file of a run, and say how; the names lie beside the contents as often as they matter."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    top = [path for path in files if path.parent == directory]
    path = dice.choice(top if dice.random() < 0.6 else files)
    what = path.relative_to(directory).as_posix()
    if dice.random() < 0.3:
        return f"{what}: {put_something_else(dice, path, elsewhere)}"
    change = dice.choice(CHANGES)
    before = path.read_bytes()
    path.write_bytes(change(dice, before))
    return f"{what}: {change.__name__}"


# ------------------------------------------------------------------ what is made of it


@dataclass
class Verdicts:
    """What became of damaged runs."""

    refused: Counter = field(default_factory=Counter)
    went_on: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@contextmanager
def heard():
    """Gather whatever a user would read: messages, warnings, lines of the log."""
    words = io.StringIO()
    handler = logging.StreamHandler(words)
    logging.getLogger("truestep").addHandler(handler)
    try:
        with warnings.catch_warnings(), redirect_stderr(words):
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_: words.write(str(message))
            yield words
    finally:
        logging.getLogger("truestep").removeHandler(handler)


def torture(folder: Path, count: int, seed: int = 0) -> Verdicts:
    """Damage a run in `count` ways; make its report, and train it on."""
    dice = Dice(seed)
    verdicts = Verdicts()
    expected = go_on(folder / "whole", 3)
    go_on(folder / "sound", 2)
    elsewhere = folder / "elsewhere"
    directory = folder / "run"
    previous = signal.signal(signal.SIGALRM, _hangs)
    try:
        for number in range(count):
            elsewhere.write_bytes(ELSEWHERE)
            shutil.copytree(folder / "sound", directory)
            name = f"{number} {damage(dice, directory, elsewhere)}"
            signal.alarm(SECONDS)
            _judge(directory, name, expected, verdicts)
            signal.alarm(0)
            if elsewhere.read_bytes() != ELSEWHERE:
                verdicts.wrong.append(f"{name}: wrote through a link")
            shutil.rmtree(directory)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return verdicts


class Hang(BaseException):
    """It took too long."""


def _hangs(number, frame):
    raise Hang


def _judge(directory: Path, name: str, expected: str, verdicts: Verdicts) -> None:
    what = name.partition(" ")[2]
    try:
        with heard() as words:
            render_report(directory)
            end = go_on(directory, 3)
            render_report(directory)
    except ts.TruestepError:
        verdicts.refused[what] += 1
    except BaseException as error:  # a run must not fail in any other way
        verdicts.wrong.append(f"{name}: {error!r}")
    else:
        verdicts.went_on[what] += 1
        if end != expected:
            verdicts.wrong.append(f"{name}: another end; said {words.getvalue()!r}")
        if name.split()[1].startswith("metrics.jsonl") and "missing" not in words.getvalue():
            with suppress(OSError):
                _check_history(directory, name, verdicts)


def _check_history(directory: Path, name: str, verdicts: Verdicts) -> None:
    lines = (directory / "metrics.jsonl").read_text("utf-8").count("\n")
    if lines != 12:  # nine batches and three epochs
        verdicts.wrong.append(f"{name}: {lines} lines of metrics, and nothing was said")
