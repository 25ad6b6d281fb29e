# SPDX-License-Identifier: Apache-2.0
"""Every recipe at toy size: killed and gone on with to the same bits, and the same update however its batch is split."""

import hashlib
import os
from importlib.util import find_spec

import pytest
import torch
from support.trainings import digest

import truestep as ts
from truestep.recipes.loading.find import recipes
from truestep.recipes.loading.parse import load_recipe
from truestep.recipes.parts.audio_pieces import harmonic_sounds
from truestep.report.metrics import read_metrics
from truestep.run.options import config_as_json_values

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")

# Options of a toy, and the step at which its process is killed.
TOYS = {
    "charlm": (
        {"characters": 1_500, "length": 16, "width": 8, "written": 5, "log_steps": 2, "batch_size": 13},
        5,
    ),
    "multitask": ({"epochs": 2, "batch_size": 500, "width": 8, "layers": 1}, 4),
    "vocoder": (
        {"epochs": 2, "adversarial_epochs": 1, "batch_size": 7, "samples": 512, "channels": 4, "layers": 2},
        4,
    ),
    "wgan-gp": (
        {
            "epochs": 2,
            "critic_updates": 2,
            "batch_size": 300,
            "width": 16,
            "judge_epochs": 1,
            "log_epochs": 1,
        },
        7,
    ),
}


@pytest.fixture(autouse=True)
def nothing_moves():
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        yield
    torch.set_num_threads(threads)


def written(folder):
    """Write the sounds that the vocoder learns from."""
    folder.mkdir(exist_ok=True)
    for number, sound in enumerate(harmonic_sounds()[:12]):
        (folder / f"{number:02}.wav").write_bytes(ts.Audio(sound[2000:3024], 8_000).content)
    return folder


class Killed:
    """A run whose process dies when a batch is asked for after `step` of them."""

    def __init__(self, run, step):
        self._run, self._step = run, step

    def __getattr__(self, name):
        return getattr(self._run, name)

    def batches(self, source):
        for batch in self._run.batches(source):
            if self._run.step == self._step:
                os._exit(0)
            yield batch


def trained(name, directory, *, killed_at=None, **more):
    module = load_recipe(recipes()[name])
    if name == "vocoder":
        more["data"] = written(directory.parent / "data")
    config = module.Config(**TOYS[name][0], **more)
    saving = ts.Saving(every_steps=3, every_seconds=None, background=False)
    with ts.Run(
        directory, config=config_as_json_values(config), saving=saving, progress=False, quiet=True
    ) as run:
        module.train(Killed(run, killed_at) if killed_at else run, config)
        return run


def files_of(directory):
    return sorted((path.name, path.read_bytes()) for path in directory.glob("media/*/*"))


def ended(run):
    found = hashlib.sha256(repr(files_of(run.directory)).encode())
    return digest(run, [Trained(parts) for parts in run.context.learners.values()]) + found.hexdigest()


class Trained:
    def __init__(self, parts):
        self._parts = parts

    def training_state(self):
        from truestep.engine.state import learner_state

        return learner_state(self._parts)


@pytest.mark.sliced(4)
@pytest.mark.parametrize("name", TOYS)
def test_a_killed_recipe_goes_on_to_the_same_bits(name, tmp_path):
    whole = trained(name, tmp_path / "whole")
    step = TOYS[name][1]
    assert 3 < step < whole.step
    child = os.fork()
    if child == 0:
        try:
            trained(name, tmp_path / "killed", killed_at=step)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    resumed = trained(name, tmp_path / "killed")
    assert ended(resumed) == ended(whole)
    assert files_of(whole.directory)


@pytest.fixture
def plain_descent(monkeypatch):
    """Updates in proportion to the gradient: Adam would make a rounding error of a gradient near zero a whole step."""
    for name in ("Adam", "AdamW"):
        monkeypatch.setattr(torch.optim, name, lambda p, lr, **_: torch.optim.SGD(p, lr=lr))


def assert_same_weights(run, other):
    pairs = zip(run.context.learners.values(), other.context.learners.values(), strict=True)
    for one, another in pairs:
        for a, b in zip(one.weights.parameters, another.weights.parameters, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-6)


@pytest.mark.sliced(4)
@pytest.mark.parametrize("name", TOYS)
def test_a_recipe_makes_the_same_updates_however_its_batches_are_split(name, tmp_path, plain_descent):
    whole = trained(name, tmp_path / "whole")
    split = trained(name, tmp_path / "split", micro_batch=TOYS[name][0]["batch_size"] * 2 // 5)
    assert_same_weights(whole, split)


def test_two_heads_in_turn_are_their_sum_in_less_memory(tmp_path, plain_descent):
    turn = trained("multitask", tmp_path / "turn")
    assert_same_weights(turn, trained("multitask", tmp_path / "summed", one_by_one=False))
    first = next(read_metrics(turn.directory / "metrics.jsonl")).values
    assert first["peak_mib_one_by_one"] < 0.8 * first["peak_mib_together"]
