# SPDX-License-Identifier: Apache-2.0
"""One bit of a checkpoint is flipped: is it loaded or refused? `python benchmarks/peers/bit_flips.py`

A state of four tensors (16 KB each; `--side 512` makes it 1 MB) is saved in each format as usual. Then, 400 times, one random bit
of all of its files is flipped, the checkpoint is loaded as usual, and the bit is put back. What is loaded is compared with what
was saved: a flip may hit bytes that mean nothing. Lightning keeps its checkpoints in files of torch.save, Accelerate in both.
"""

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

import torch
from table import TORCH, TRUESTEP, Row, named, quiet, show

import truestep as ts

STATE: dict[str, torch.Tensor] = {}
Loaded = dict[str, torch.Tensor]


class Saved:
    """A format: how a state is saved into a folder, and loaded from it; `files` is all that belongs to the checkpoint."""

    def files(self, folder: Path) -> list[Path]:
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> Loaded:
        raise NotImplementedError


class Pickled(Saved):
    def save(self, folder):
        torch.save(STATE, folder / "state.pt")

    def load(self, folder):
        return torch.load(folder / "state.pt", weights_only=True)


class Safetensors(Saved):
    def save(self, folder):
        from safetensors.torch import save_file

        save_file(STATE, folder / "state.safetensors")

    def load(self, folder):
        from safetensors.torch import load_file

        return load_file(folder / "state.safetensors")


class Distributed(Saved):
    """torch.distributed.checkpoint, in one process."""

    def save(self, folder):
        import torch.distributed.checkpoint as dcp

        dcp.save(STATE, checkpoint_id=folder)

    def load(self, folder):
        import torch.distributed.checkpoint as dcp

        state = {name: torch.zeros_like(tensor) for name, tensor in STATE.items()}
        dcp.load(state, checkpoint_id=folder)
        return state


class Truestep(Saved):
    def save(self, folder):
        with ts.CheckpointStore(folder) as store:
            store.save(1, STATE)

    def files(self, folder):  # the store's lock beside it is no part of it
        (checkpoint,) = (path for path in folder.iterdir() if path.is_dir())
        return super().files(checkpoint)

    def load(self, folder):
        return ts.read_checkpoint(folder)


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))


def outcome(form: Saved, folder: Path) -> str:
    try:
        loaded = form.load(folder)
    except KeyboardInterrupt:
        raise
    except BaseException:  # DCP's CheckpointException is no Exception
        return "refused"
    sound = loaded.keys() == STATE.keys() and all(
        loaded[name].dtype == STATE[name].dtype and torch.equal(loaded[name], STATE[name]) for name in STATE
    )
    return "loaded as it was saved" if sound else "loaded with other contents"


def flipped(form: Saved, folder: Path, flips: int) -> Counter[str]:
    form.save(folder)
    assert outcome(form, folder) == "loaded as it was saved"
    files, dice, found = form.files(folder), random.Random(0), Counter()
    sizes = [path.stat().st_size for path in files]
    for _ in range(flips):
        (path,) = dice.choices(files, weights=sizes)
        bit = dice.randrange(8 * path.stat().st_size)
        flip(path, bit)
        found[outcome(form, folder)] += 1
        flip(path, bit)
    assert outcome(form, folder) == "loaded as it was saved"
    return found


def rows(flips: int):
    forms = {
        f"{TORCH}, torch.save": Pickled(),
        named("safetensors", "safetensors"): Safetensors(),
        f"{TORCH}, torch.distributed.checkpoint": Distributed(),
        TRUESTEP: Truestep(),
    }
    for name, form in forms.items():
        with tempfile.TemporaryDirectory() as folder:
            found = flipped(form, Path(folder), flips)
        text = ", ".join(f"{number} {what}" for what, number in sorted(found.items()))
        yield Row(
            name,
            f"{flips} single flips",
            "0 loaded with other contents",
            text,
            not found["loaded with other contents"],
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=400, help="for each row")
    parser.add_argument("--side", type=int, default=64, help="of the four matrices")
    arguments = parser.parse_args()
    quiet()
    draws = torch.Generator().manual_seed(0)
    for layer in range(4):
        STATE[f"layer{layer}.weight"] = torch.randn(arguments.side, arguments.side, generator=draws)
    size = f"four tensors of {arguments.side**2 * 4 // 1024} KB"
    show(f"A random bit of a checkpoint's files is flipped, {size}", rows(arguments.flips))
