# SPDX-License-Identifier: Apache-2.0
"""Choosing the device and its flags."""

import pytest
import torch
from support.card import Card

import truestep as ts
from truestep.core.errors import OptionError
from truestep.engine.shared_context import LearnerContext
from truestep.nn.seeds.repeatability import read_determinism_flags
from truestep.run.device import RunCudnnTuner, choose_run_device, set_run_determinism


@pytest.fixture(autouse=True)
def flags():
    kept = read_determinism_flags()
    yield
    kept.restore()


def tuner():
    made = RunCudnnTuner(LearnerContext(torch.device("cpu")))
    made.active = True  # as on a CUDA device; the flag itself is there without one
    return made


def test_the_tuner_is_on_where_shapes_repeat_and_a_short_batch_does_not_turn_it_off():
    watching = tuner()
    torch.backends.cudnn.benchmark = False
    for size in (8, 8, 8, 3, 8, 8):
        watching.see((torch.zeros(size, 2), {"label": torch.zeros(size)}))
    assert torch.backends.cudnn.benchmark
    assert watching._context.choices[-1][:2] == ("cudnn.benchmark", "on")


def test_the_tuner_is_off_where_shapes_vary():
    watching = tuner()
    for size in (8, 8, 8, 8, 1, 2, 3, 4):
        watching.see(torch.zeros(size, 2))
    assert not torch.backends.cudnn.benchmark
    assert not watching.active
    assert "shapes" in watching._context.choices[-1].reason


def test_on_a_cpu_nothing_is_watched():
    assert not RunCudnnTuner(LearnerContext(torch.device("cpu"))).active


def test_determinism_turns_the_tuner_off_and_says_why(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = True
    context = LearnerContext(torch.device("cpu"))
    set_run_determinism(context, deterministic=True)
    assert not torch.backends.cudnn.benchmark
    assert torch.are_deterministic_algorithms_enabled()
    assert "auto-tuner" in context.choices[-1].reason


@pytest.mark.parametrize("device", ["gpu", "cuda:31", "meta:x"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(OptionError, match="can't be used here"):
        choose_run_device(device)


def test_several_processes_take_the_cpu_where_they_can_exchange_nothing_else(tmp_path, monkeypatch):
    with Card("mps"):
        assert choose_run_device("auto") == torch.device("mps", 0)
        for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        context = LearnerContext(choose_run_device("auto"))
        set_run_determinism(context, deterministic=False)
        assert context.choices[-1][:3] == ("device", "cpu", "several processes can't exchange tensors of mps")
        with pytest.raises(OptionError, match=r"can't train together on mps.*device='cpu'"):
            ts.Run(tmp_path, device="mps")


def test_a_cpu_that_was_asked_for_beside_an_accelerator_is_said_so():
    with Card("mps"):
        context = LearnerContext(choose_run_device("cpu"))
        set_run_determinism(context, deterministic=False)
    assert context.choices[-1][:3] == ("device", "cpu", "as given")
