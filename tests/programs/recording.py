# SPDX-License-Identifier: Apache-2.0
"""What the law Plain needs inside of the two programs: batches and random streams are kept in one and given in the other.

`python -c "from programs import recording; recording.record()"` runs main.py with Truestep; `recording.replay()` the plain one.
"""

import builtins
import copy
import pickle
import random
import runpy
import sys
from pathlib import Path

import numpy as np
import torch

KEPT = Path("..") / "recorded.pkl"


def run_program() -> None:
    """Run main.py as the main module, so that its classes are found again when they are unpickled; or the folder's package."""
    sys.argv[:] = ["main.py"]
    if not Path("main.py").exists():
        (package,) = (path.parent.name for path in Path().glob("*/__main__.py"))
        runpy.run_module(package, run_name="__main__", alter_sys=True)
        return
    text = Path("main.py").read_text("utf-8")
    exec(compile(text, "main.py", "exec"), sys.modules["__main__"].__dict__)


def run_main() -> None:
    """Run the program and keep its losses."""
    losses: list[float] = []
    builtins.note_loss = lambda loss: losses.append(loss.item())
    run_program()
    torch.save(losses, "losses.pt")


def states():
    """Return where the global random streams stand."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def set_states(kept) -> None:
    """Put the global random streams where they stood."""
    random.setstate(kept[0])
    np.random.set_state(kept[1])
    torch.set_rng_state(kept[2])


def uncompiled(function):
    """Return a function that a compiled loss calls as it is: each number of a random stream would be a condition to compile for."""
    return torch.compiler.disable(function)


def record() -> None:
    """Run the program and keep, at each call of a loss, its batch with the epoch, and the streams."""
    calls, last, epochs = [], [], [0]

    def same_stream(batch):
        new = not last or last[0] is not batch
        last[:] = [batch]
        calls.append((len(epochs) if new else None, copy.deepcopy(batch) if new else None, states()))

    builtins.same_stream, builtins.epoch_begins = uncompiled(same_stream), lambda: epochs.append(0)
    run_main()
    KEPT.write_bytes(pickle.dumps(calls))


class LateBatches:
    """Hands out what was recorded, an epoch at a time; what is read at the first use, when the program's classes exist."""

    def __init__(self):
        self.calls, self.batches = None, None

    def load(self):
        """Read what was recorded, once."""
        if self.calls is None:
            kept = pickle.loads(KEPT.read_bytes())
            self.batches = [(epoch, batch) for epoch, batch, _ in kept if epoch is not None]
            self.calls = [state for _, _, state in kept]

    def __iter__(self):
        self.load()
        epoch = self.batches[0][0] if self.batches else None  # a loop of steps has one epoch
        while self.batches and self.batches[0][0] == epoch:
            yield self.batches.pop(0)[1]

    def __len__(self):
        self.load()
        return sum(epoch == self.batches[0][0] for epoch, _ in self.batches)

    def same_stream(self):
        """Set the streams to where they stood at this call of a loss."""
        self.load()
        set_states(self.calls.pop(0))


def replay() -> None:
    """Run the plain program on the batches that were kept, with the same streams at each call of a loss."""
    given = LateBatches()
    builtins.replayed_batches, builtins.same_stream = lambda: given, uncompiled(given.same_stream)
    run_main()
