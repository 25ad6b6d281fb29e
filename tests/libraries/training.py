# SPDX-License-Identifier: Apache-2.0
"""A small training on one source: `python training.py DATA RUN SOURCE ORDER PER_RANK WORKERS`.

RUN/seen-RANK.jsonl has a line a batch: its step, its epoch, the numbers of this rank's samples; RUN/end-RANK.json the bits of the
weights at the end.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from libraries.sources import SOURCES, Reading

import truestep as ts

RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
EPOCHS, EVERY = 2, 3
PAUSE_SECONDS = 0.004  # a batch, so that a kill meets one


def bits(module: torch.nn.Module) -> str:
    """Return a hash of a module's weights."""
    hashed = hashlib.blake2b(digest_size=8)
    for parameter in module.parameters():
        hashed.update(parameter.detach().numpy().tobytes())
    return hashed.hexdigest()


def train(folder: Path, name: str, reading: Reading) -> None:
    """Train, writing down what is seen."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    more = {"progress": False, "doctor": False, "timeout_seconds": 40.0}
    saving = ts.Saving(every_steps=EVERY, background=False)
    with ts.Run(folder / "run", seed=1, saving=saving, **more) as run:
        net = run.learner(model, lambda p: torch.optim.AdamW(p, lr=1e-2))
        data, options = SOURCES[name].open(reading)
        batches = run.data(data, **options)
        with (folder / f"seen-{RANK}.jsonl").open("a", buffering=1) as seen:
            for epoch in run.epochs(EPOCHS):
                for batch in run.batches(batches):
                    numbers = torch.as_tensor(batch["id"]).tolist()
                    net.update(
                        lambda batch: (
                            net(batch["x"] + 0.1 * ts.randn(len(batch["x"]), 3)).square().squeeze(1)
                        ),
                        batch,
                    )
                    seen.write(json.dumps([run.step, epoch, numbers]) + "\n")
                    time.sleep(PAUSE_SECONDS)
        promise = [
            f"{each.name}: {each.value}; {each.reason}" for each in run.choices() if "promise" in each.name
        ]
    (folder / f"end-{RANK}.json").write_text(json.dumps({"bits": bits(model), "promise": promise}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, folder, name, order, per_rank, workers = sys.argv[1:]
    asked = Reading(Path(place), order, per_rank == "True", int(workers), RANK, RANKS)
    train(Path(folder), name, asked)
