# SPDX-License-Identifier: Apache-2.0
"""The Resume law: stopped anywhere and started again, a run ends with the bits of one that never stopped."""

import os
import signal
import warnings
from dataclasses import replace

import pytest
import torch
from support.trainings import BATCHES, EPOCHS, Training, train

import truestep as ts
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.resume_attempts import MAX_ATTEMPTS, record_attempt

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


EVERY = range(1, EPOCHS * BATCHES + 1)
EDGES = sorted({1, BATCHES, BATCHES + 1, EPOCHS * BATCHES})


@pytest.mark.sliced(5)
@pytest.mark.parametrize(
    "steps", [EDGES, pytest.param(EVERY, marks=pytest.mark.slow)], ids=["edges", "every batch"]
)
@pytest.mark.parametrize("training", HARD, ids=name_of)
def test_stopped_after_any_batch_the_run_ends_with_the_same_bits(tmp_path, training, steps):
    undisturbed = train(tmp_path / "whole", training)
    for step in steps:
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


def test_a_newest_checkpoint_that_is_passed_over_and_used_again_ends_with_the_same_bits(tmp_path):
    training = replace(PLAIN, saving=ts.Saving(every_steps=5, background=False))
    undisturbed = train(tmp_path / "whole", training)
    directory = tmp_path / "stopped"
    with pytest.raises(SystemExit):
        train(directory, training, interrupt=stop_at(8))
    older, newer = sorted(entry.name for entry in (directory / "checkpoints").glob("0*"))
    assert (older[-1], newer[-1]) == ("5", "8")
    exhaust(directory, newer)
    with pytest.warns(UserWarning, match=f"{newer} was passed over: 3 runs went on from it"):
        killed_at(9, directory, training)
    assert [entry.name for entry in directory.glob(".metrics*")] == [".metrics-0.jsonl"]
    exhaust(directory, older)
    assert train(directory, training) == undisturbed
    assert not list(directory.glob(".metrics*"))


def exhaust(directory, checkpoint):
    """Note as many attempts from a checkpoint as make a run pass it over."""
    for _ in range(MAX_ATTEMPTS):
        record_attempt(CheckpointFiles(), directory / "checkpoints", checkpoint)


def killed_at(step, directory, training):
    """Train in a process that is killed in the middle of a batch; warn here of what it was warned of."""

    def die(run):
        if run.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    seen, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(told, 2)
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_: os.write(told, str(message).encode())
        train(directory, training, interrupt=die)
        os._exit(0)
    os.close(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with os.fdopen(seen) as text:
        warnings.warn(text.read(), stacklevel=2)


def test_a_checkpoint_with_a_missing_file_is_passed_over_by_a_run(tmp_path):
    undisturbed = train(tmp_path / "whole", PLAIN)
    with pytest.raises(SystemExit):
        train(tmp_path / "stopped", PLAIN, interrupt=stop_at(8))
    newest = max((tmp_path / "stopped" / "checkpoints").glob("0*"))
    min(newest.glob("*.safetensors")).unlink()
    with pytest.warns(UserWarning, match="was passed over: .* it is missing"):
        assert train(tmp_path / "stopped", PLAIN) == undisturbed


def test_lines_that_only_a_damaged_checkpoint_would_need_do_not_stay(tmp_path):
    training = replace(PLAIN, saving=ts.Saving(every_steps=5, background=False))
    undisturbed = train(tmp_path / "whole", training)
    with pytest.raises(SystemExit):
        train(tmp_path / "stopped", training, interrupt=stop_at(8))
    newest = max((tmp_path / "stopped" / "checkpoints").glob("0*"))
    damaged = min(newest.glob("*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match="was passed over: .* checksum"):
        assert train(tmp_path / "stopped", training) == undisturbed
    assert not list((tmp_path / "stopped").glob(".metrics*"))
    assert damaged.exists()


def test_an_exception_in_the_loop_goes_on_upwards_and_the_run_resumes_exactly(tmp_path):
    undisturbed = train(tmp_path / "whole", PLAIN)

    def fail(run):
        if run.step == 7:
            raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        train(tmp_path / "failed", PLAIN, interrupt=fail)
    assert train(tmp_path / "failed", PLAIN) == undisturbed
