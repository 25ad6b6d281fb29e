# SPDX-License-Identifier: Apache-2.0
"""`python -m libraries.others [WORD]...`: train beside each library, kill, start again, compare; or see that it is refused.

One row a library: its release, and *the same bits*, or *refused* with the words that the page "With other libraries" has.
The kill is SIGKILL at a drawn step between two checkpoints. A row that is neither ends the command with 1.
"""

import hashlib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from importlib.metadata import packages_distributions, version
from pathlib import Path

import torch
from libraries.recipes import RECIPES, Recipe

import truestep as ts

EPOCHS, BATCH = 3, 8
LAST = 15  # of at least 18 steps


def train(directory: Path, made: Recipe, kill_at: int | None = None) -> str:
    """Train in a directory, and return a digest of weights and buffers; die at a step."""
    if made.train is not None:
        return digest(made.train(directory, kill_at))
    run = ts.Run(
        directory,
        seed=0,
        device="cpu",
        config=made.config() if made.config else None,
        saving=ts.Saving(every_steps=4, background=False),
        quiet=True,
        progress=False,
    )
    net = run.learner(made.make(), made.optimizer, **made.learner)
    kept = made.track(net) if made.track else {}
    run.track(**{name: each for name, each in kept.items() if each is not net})
    data = run.data(made.data, batch_size=BATCH, shuffle=True, **made.options)
    for _ in run.epochs(EPOCHS):
        for batch in run.batches(data):
            if run.step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            net.update(lambda batch: made.loss(net, batch), batch, **made.update)
            if made.after:
                made.after(kept)
    return digest(net.module)


def digest(module: torch.nn.Module) -> str:
    found = hashlib.sha256()
    for name, each in module.state_dict().items():
        if isinstance(each, torch.Tensor):
            found.update(
                name.encode() + each.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
    return found.hexdigest()


def forked(directory: Path, made: Recipe, kill_at: int | None = None) -> tuple[int, str]:
    """Train in a process of its own; return its status and what it wrote: the digest, or an error's words."""
    answer = directory.with_suffix(".answer")
    number = os.fork()
    if not number:
        status = 1
        try:
            answer.write_text(train(directory, made, kill_at))
            status = 0
        except BaseException as error:
            answer.write_text(f"{type(error).__name__}: {error}")
            if not made.refused:
                traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    return status, answer.read_text() if answer.exists() else ""


def outcome(made: Recipe, folder: Path, draws: random.Random) -> str:
    """Return what becomes of a training that is killed: the same bits, refused, or what went wrong."""
    status, whole = forked(folder / "whole", made)
    if made.refused:
        said = status != 0 and made.refused in whole
        return "refused" if said else f"FAILED: not refused with {made.refused!r}, but {whole[:300]}"
    if status:
        return f"FAILED: {whole[:300]}"
    kill_at = draws.randrange(5, LAST)
    killed, _ = forked(folder / "killed", made, kill_at)
    status, resumed = forked(folder / "killed", made)
    if killed != -signal.SIGKILL or status:
        return f"FAILED: ended with {killed}, and started again with {status}: {resumed[:300]}"
    return "the same bits" if resumed == whole else f"FAILED: other bits after a kill at step {kill_at}"


def release(packages: tuple[str, ...]) -> str:
    names = packages_distributions()
    return ", ".join(f"{each} {version(names[each][0])}" for each in packages)


def main(words: list[str]) -> int:
    torch.set_num_threads(1)
    draws, failed = random.Random(0), 0
    for name, (packages, make) in RECIPES.items():
        if words and not any(word.lower() in name.lower() for word in words):
            continue
        started, folder = time.perf_counter(), Path(tempfile.mkdtemp(prefix="library."))
        try:
            for each in packages:
                importlib.import_module(each)
        except ImportError as error:
            print(f"| {name} | – | not installed: {error} |", flush=True)
            continue
        found = outcome(make(), folder, draws)
        shutil.rmtree(folder)
        failed += found.startswith("FAILED")
        print(
            f"| {name} | {release(packages)} | {found} | {time.perf_counter() - started:.0f} s |", flush=True
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
