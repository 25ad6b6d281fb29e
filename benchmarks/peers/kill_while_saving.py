# SPDX-License-Identifier: Apache-2.0
"""SIGKILL while checkpoints are saved: is something loadable left? `python benchmarks/peers/kill_while_saving.py`

A process saves 16 MB, pauses for 50 ms, saves again, and is killed at a random moment of the half second after its first complete
save. Then each checkpoint that is there is loaded as its library loads it. Counted are the kills that hit a save, those after
which nothing could be loaded, and those after which the newest (the one that a resume takes first) could not. "Other file system"
is one that $TMPDIR is not on, /dev/shm unless `--other` names another; without one those rows are left out.
"""

import argparse
import importlib
import mmap
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from processes import killed_after
from table import ACCELERATE, LIGHTNING, LIGHTNING_PLAIN, TORCH, TRUESTEP, Row, quiet, show
from torch import nn
from torch.utils.data import DataLoader

import truestep as ts
from truestep.checkpoints import Checkpoint

SIDE = 2048  # 16 MB of float32
SECONDS, PAUSE = 0.5, 0.05
TITLE = "Killed by SIGKILL at a random moment, while 16 MB are saved with 50 ms between"
Tell = Callable[[], None]
SAVING = mmap.mmap(-1, 1)  # shared with the forked processes: whether one is in a save


@contextmanager
def a_save() -> Iterator[None]:
    SAVING[0] = 1
    yield
    SAVING[0] = 0


def network():
    return nn.Linear(SIDE, SIDE, bias=False)


class Saver:
    """One way to save: `save` goes on for ever and tells of its first complete save; `newest_first` loads what is left."""

    def save(self, folder: Path, tell: Tell) -> None:
        for step in range(10**9):
            with a_save():
                self.save_one(folder, step)
            if step == 0:
                tell()
            time.sleep(PAUSE)

    def save_one(self, folder: Path, step: int) -> None:
        raise NotImplementedError

    def newest_first(self, folder: Path) -> Iterator[Callable[[], object]]:
        raise NotImplementedError


class Overwritten(Saver):
    """torch.save to the same name each time."""

    def __init__(self):
        self.state = network().state_dict()

    def save_one(self, folder, step):
        torch.save({"step": step, "net": self.state}, folder / "last.pt")

    def newest_first(self, folder):
        yield lambda: torch.load(folder / "last.pt", weights_only=True)


class Replaced(Overwritten):
    """torch.save to another name, which then replaces the first."""

    def save_one(self, folder, step):
        torch.save({"step": step, "net": self.state}, folder / "last.pt.tmp")
        (folder / "last.pt.tmp").replace(folder / "last.pt")


class Accelerated(Saver):
    def __init__(self, total_limit):
        self.total_limit = total_limit

    def accelerator(self, folder):
        from accelerate import Accelerator
        from accelerate.utils import ProjectConfiguration

        project = ProjectConfiguration(
            str(folder), automatic_checkpoint_naming=True, total_limit=self.total_limit
        )
        accelerator, net = Accelerator(cpu=True, project_config=project), network()
        accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
        return accelerator

    def save(self, folder, tell):
        self.running = self.accelerator(folder)
        super().save(folder, tell)

    def save_one(self, folder, step):
        self.running.save_state()

    def newest_first(self, folder):
        accelerator = self.accelerator(folder)
        found = sorted(
            (folder / "checkpoints").glob("checkpoint_*"), key=lambda p: -int(p.name.split("_")[1])
        )
        for path in found:
            yield lambda path=path: accelerator.load_state(str(path))


class Trained(Saver):
    """Lightning's ModelCheckpoint after each batch; it keeps the newest, which is its default."""

    def save(self, folder, tell):
        import lightning.pytorch as pl
        from lightning.pytorch.callbacks import ModelCheckpoint

        class Checkpoints(ModelCheckpoint):
            def on_train_batch_end(self, *arguments):
                with a_save():
                    super().on_train_batch_end(*arguments)

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = network()

            def training_step(self, batch, batch_idx):
                return self.net(batch).mean()

            def on_train_batch_start(self, batch, batch_idx):
                if batch_idx == 1:
                    tell()
                time.sleep(PAUSE)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=1e-3)

        options = {**LIGHTNING_PLAIN, "enable_checkpointing": True}
        checkpoints = Checkpoints(folder, every_n_train_steps=1)
        trainer = pl.Trainer(**options, max_epochs=1, callbacks=[checkpoints])
        trainer.fit(Module(), DataLoader(torch.ones(1, SIDE).expand(10**6, SIDE), batch_size=1))

    def newest_first(self, folder):
        found = sorted(folder.glob("*.ckpt"), key=lambda path: -int(path.stem.split("step=")[1]))
        for path in found:
            yield lambda path=path: torch.load(path, weights_only=False)


class Stored(Saver):
    """Truestep's store, which writes in the background; it keeps the newest only, as the others do."""

    def save(self, folder, tell):
        self.state = {"net": network().state_dict()}
        with ts.CheckpointStore(folder, retention=ts.Retention(last=1)) as self.store:
            super().save(folder, tell)

    def save_one(self, folder, step):
        self.store.save(step, self.state)
        self.store.wait()

    def newest_first(self, folder):
        with ts.CheckpointStore(folder) as store:
            for found in store.checkpoints():
                # what has no sound manifest can't be opened again: it is damaged
                path = found.path if isinstance(found, Checkpoint) else folder / found.name
                yield lambda path=path: ts.read_checkpoint(path)


def loads(load) -> bool:
    try:
        load()
    except Exception:
        return False
    return True


def outcome(saver: Saver, folder: Path, dice: random.Random) -> tuple[bool, bool, bool]:
    """Kill one process; return whether it was saving, whether nothing can be loaded, and whether the newest can't be."""
    folder.mkdir()
    SAVING[0] = 0
    try:
        killed_after(lambda tell: saver.save(folder, tell), dice.uniform(0.0, SECONDS))
        loaded = [loads(load) for load in saver.newest_first(folder)]
    finally:
        shutil.rmtree(folder)
    return bool(SAVING[0]), not any(loaded), not (loaded and loaded[0])


def contenders(here: Path, other: Path | None) -> Iterator[tuple[str, str, Saver, Path]]:
    yield f"{TORCH}, torch.save", "the same name each time", Overwritten(), here
    yield f"{TORCH}, torch.save", "another name, which then replaces it", Replaced(), here
    yield ACCELERATE, "total_limit=1", Accelerated(1), here
    yield ACCELERATE, "total_limit=2", Accelerated(2), here
    yield LIGHTNING, "ModelCheckpoint", Trained(), here
    if other:
        yield LIGHTNING, "ModelCheckpoint, other file system", Trained(), other
    yield TRUESTEP, "keeps the newest only", Stored(), here
    if other:
        yield TRUESTEP, "keeps the newest only, other file system", Stored(), other


def rows(kills: int, here: Path, other: Path | None):
    for library, case, saver, place in contenders(here, other):
        dice = random.Random(0)
        found = [outcome(saver, place / str(number), dice) for number in range(kills)]
        saving, nothing, unreadable = (sum(column) for column in zip(*found, strict=True))
        text = (
            f"{saving} of {kills} hit a save: {nothing} nothing loadable, {unreadable} the newest unreadable"
        )
        yield Row(library, case, "a sound newest, always", text, nothing == unreadable == 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100, help="for each row")
    parser.add_argument(
        "--other", type=Path, default=Path("/dev/shm"), help="a folder on another file system"
    )
    arguments = parser.parse_args()
    quiet()
    for name in ("accelerate", "lightning.pytorch"):
        importlib.import_module(name)  # once, before the forks
    with tempfile.TemporaryDirectory() as here:
        tempfile.tempdir = here  # what a killed process leaves of its temporary files goes with the folder
        other = arguments.other
        if other.is_dir() and other.stat().st_dev != Path(here).stat().st_dev:
            with tempfile.TemporaryDirectory(dir=other) as there:
                show(TITLE, rows(arguments.kills, Path(here), Path(there)))
        else:
            show(TITLE, rows(arguments.kills, Path(here), None))
            print(f"\n{other} is no other file system here: those rows were left out.")


if __name__ == "__main__":
    main()
