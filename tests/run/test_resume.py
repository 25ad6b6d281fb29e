# SPDX-License-Identifier: Apache-2.0
"""The Resume law: stopped anywhere and started again, a run ends with the bits of one that never stopped."""

import os
import signal
from dataclasses import replace

import pytest
import torch
from support.trainings import BATCHES, EPOCHS, Training, train

PLAIN = Training()
HARD = [
    PLAIN,
    replace(PLAIN, augmentation="numpy", ema=True, micro_batch=3),
    replace(PLAIN, augmentation="python", precision="bf16-mixed"),
    replace(PLAIN, augmentation="torch", precision="fp16-mixed", two_learners=True, ema=True),
    replace(PLAIN, two_learners=True, micro_batch=5),
]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stop_at(step):
    def interrupt(run):
        if run.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return interrupt


def name_of(training):
    return "-".join(
        str(value)
        for value in (
            training.precision,
            training.augmentation,
            training.micro_batch,
            training.ema,
            training.two_learners,
        )
    )


@pytest.mark.parametrize("training", HARD, ids=name_of)
def test_stopped_after_any_batch_the_run_ends_with_the_same_bits(tmp_path, training):
    undisturbed = train(tmp_path / "whole", training)
    for step in range(1, EPOCHS * BATCHES + 1):
        directory = tmp_path / f"stopped-{step}"
        with pytest.raises(SystemExit) as stopped:
            train(directory, training, interrupt=stop_at(step))
        assert stopped.value.code == 143
        assert train(directory, training) == undisturbed


def test_stopped_twice_and_at_an_edge_the_run_ends_with_the_same_bits(tmp_path):
    undisturbed = train(tmp_path / "whole", PLAIN)
    for step in (2, 3, BATCHES, BATCHES + 1, 12):
        with pytest.raises(SystemExit):
            train(tmp_path / "stopped", PLAIN, interrupt=stop_at(step))
    assert train(tmp_path / "stopped", PLAIN) == undisturbed


def test_an_exception_in_the_loop_goes_on_upwards_and_the_run_resumes_exactly(tmp_path):
    undisturbed = train(tmp_path / "whole", PLAIN)

    def fail(run):
        if run.step == 7:
            raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        train(tmp_path / "failed", PLAIN, interrupt=fail)
    assert train(tmp_path / "failed", PLAIN) == undisturbed
