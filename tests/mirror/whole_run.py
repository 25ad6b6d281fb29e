# SPDX-License-Identifier: Apache-2.0
"""A training to the end in `run` below the working directory; what it ends with is written to the file named first."""

import os
import sys
import time
import warnings
from pathlib import Path

import torch
from support.trainings import BATCHES, EPOCHS, Training, train

import truestep as ts
from truestep.mirror import mirror


def main() -> None:
    warnings.simplefilter("ignore")  # three kills before a save pass a checkpoint over, with a warning
    torch.set_num_threads(1)
    mirror.LOOK_SECONDS = 0.02
    grace = float(os.environ.get("GRACE", "25"))
    saving = ts.Saving(every_steps=2, epoch_seconds=0.0, best="accuracy", keep_every=8, grace_seconds=grace)
    workers = int(os.environ.get("WORKERS", "0"))
    training = Training(augmentation="numpy", micro_batch=3, ema=True, saving=saving, workers=workers)
    pause, holds = float(os.environ.get("PAUSE", "0")), "HOLDS" in os.environ

    def interrupt(run: ts.Run) -> None:
        if pause:
            time.sleep(
                3600 if holds and run.step >= EPOCHS * BATCHES - 1 else pause
            )  # it is killed before its end

    digest = train(Path("run"), training, interrupt=interrupt)
    Path(sys.argv[1]).write_text(digest)


if __name__ == "__main__":
    main()
