# SPDX-License-Identifier: Apache-2.0
"""The Resume law over all combinations: each process does one batch, is stopped, and the next one goes on.

Stopping after every batch one after another resumes at every batch, at both edges of each epoch, and many times in a row.
"""

import itertools
import os
import signal
from pathlib import Path

import pytest
import torch
from support.trainings import BATCHES, EPOCHS, Training, train
from torture import kills

COMBINATIONS = [
    Training(
        precision=precision,
        augmentation=augmentation,
        workers=workers,
        micro_batch=micro_batch,
        ema=ema,
        two_learners=two,
    )
    for precision, augmentation, workers, micro_batch, ema, two in itertools.product(
        ("float32", "bf16-mixed", "fp16-mixed"),
        (None, "numpy", "python", "torch"),
        (0, 1, 4),
        (None, 3),
        (False, True),
        (False, True),
    )
    if workers == 0 or augmentation is not None  # tensors in memory are never loaded by workers
]


def one_thread_and(training, stop):
    """Return a training for a process of its own; with `stop` it is left after its first batch."""

    def trainer(directory: Path) -> str:
        torch.set_num_threads(1)
        if not stop:
            return train(directory, training)
        try:
            return train(directory, training, interrupt=lambda run: os.kill(os.getpid(), signal.SIGTERM))
        except SystemExit as left:
            return f"left with {left.code}"

    return trainer


def check(folder, training):
    kills.load_all(one_thread_and(training, stop=False), folder / "loaded")
    undisturbed = kills.forked(one_thread_and(training, stop=False), folder / "whole").end(600.0)
    for number in range(EPOCHS * BATCHES):
        left = kills.forked(one_thread_and(training, stop=True), folder / "stopped").end(600.0)
        assert left == "left with 143", f"after {number} batches: {left}"
    assert undisturbed == kills.forked(one_thread_and(training, stop=False), folder / "stopped").end(600.0)


def name_of(training):
    return "-".join(
        str(value)
        for value in (
            training.precision,
            training.augmentation,
            training.workers,
            training.micro_batch,
            training.ema,
            training.two_learners,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("training", COMBINATIONS, ids=name_of)
def test_every_combination_stopped_after_every_batch_ends_with_the_same_bits(tmp_path, training):
    check(tmp_path, training)
