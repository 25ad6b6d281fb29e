# SPDX-License-Identifier: Apache-2.0
"""The same program in five libraries: its lines, and what a killed run ends with. `python benchmarks/peers/same_program.py`

The programs are those of `programs/`, each in its library's own quick-start form with what its page on checkpoints adds:
ten epochs on handwritten digits, dropout, the accuracy after each epoch; started again, it goes on. Counted are the lines
that `ruff format` leaves at 110 columns, without blank lines, comments and the docstring; what they share is not counted.
Each is killed by SIGKILL in the middle of the fourth epoch and started again with the same command. Until then each epoch
takes 11 s longer than it would: Truestep saves at an epoch's end, at most every ten seconds.
"""

import ast
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from table import ACCELERATE, IGNITE, LIGHTNING, TORCH, TRUESTEP

PROGRAMS = Path(__file__).parent / "programs"
LIBRARIES = {
    "with_truestep.py": TRUESTEP,
    "with_ignite.py": IGNITE,
    "with_lightning.py": LIGHTNING,
    "with_fabric.py": LIGHTNING.replace("Lightning", "Fabric"),
    "with_accelerate.py": ACCELERATE,
}
PER_EPOCH, KILLED_IN = 23, 80  # the kill comes in the 11th batch of the fourth epoch


@dataclass(frozen=True)
class Training:
    """What one process did: the sums of the batches it trained on, and the weights it ended with, None where it was killed."""

    batches: list[str]
    weights: dict[str, torch.Tensor] | None


def lines_of(program: Path) -> int:
    """Count the lines that are neither blank nor comments nor the docstring."""
    text = program.read_text("utf-8")
    docstring = ast.parse(text).body[0]
    lines = enumerate(text.splitlines(), 1)
    kept = [
        line.strip()
        for number, line in lines
        if not docstring.lineno <= number <= (docstring.end_lineno or 0)
    ]
    return sum(bool(line) and not line.startswith("#") for line in kept)


def trained(program: Path, folder: Path, runs: str, **environment: str) -> Training:
    """Start the program in a folder, wait for its end, and read what it recorded."""
    record, weights = folder / "record", folder / "weights.pt"
    record.unlink(missing_ok=True)
    given = {
        "RECORD": str(record),
        "WEIGHTS": str(weights),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, str(program), str(folder / runs)]
    ended = subprocess.run(
        command, env={**os.environ, **given, **environment}, capture_output=True, text=True, check=False
    )
    if ended.returncode not in (0, -9):
        raise RuntimeError(f"{program.name} ended with status {ended.returncode}:\n{ended.stderr[-2000:]}")
    batches = record.read_text().splitlines()
    return Training(batches, torch.load(weights) if ended.returncode == 0 else None)


def same(some: Training, others: Training) -> bool:
    assert some.weights
    assert others.weights
    return all(torch.equal(value, others.weights[name]) for name, value in some.weights.items())


def ended(whole: Training, after: Training) -> str:
    """Say what a training that was killed and started again ended with, beside one that nobody disturbed."""
    begun = len(whole.batches) - len(after.batches)
    where = f"batch {begun} of {len(whole.batches)}" if begun > 0 else "its beginning"
    if same(whole, after):
        return f"the same bits (goes on from {where})"
    due = whole.batches[begun:]
    again = begun > 0 and after.batches[:PER_EPOCH] == whole.batches[:PER_EPOCH]
    order = (
        "the same batches" if after.batches == due else "epoch 0's order again" if again else "other batches"
    )
    return f"other weights ({order}, from {where})"


def row(program: Path, folder: Path) -> str:
    whole, control = (trained(program, folder, name) for name in ("whole", "control"))
    if not same(whole, control):
        found = "does not repeat itself when nobody kills it"
    else:
        trained(program, folder, "killed", KILL_AT=str(KILLED_IN), PAUSE="11")
        found = ended(whole, trained(program, folder, "killed"))
    return f"| {LIBRARIES[program.name]} | {lines_of(program)} | {found} |"


if __name__ == "__main__":
    print(f"The same program in five libraries, {TORCH}, Python {sys.version.split()[0]}\n")
    print("| library | lines | killed in the fourth epoch and started again |\n|---|---|---|", flush=True)
    for name in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder:
            print(row(PROGRAMS / name, Path(folder)), flush=True)
