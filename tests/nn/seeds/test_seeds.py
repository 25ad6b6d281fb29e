# SPDX-License-Identifier: Apache-2.0
"""`ts.seed_everything`: at once, everywhere, undone exactly; and it says what it can't settle."""

import json
import os
import random
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

import truestep as ts
from truestep.core.errors import OptionError
from truestep.nn.seeds.repeatability import (
    CUBLAS_VARIABLE,
    operations_without_deterministic_form,
    read_determinism_flags,
    repeatability_gaps,
)
from truestep.nn.seeds.seeded import check_seed


@pytest.fixture(autouse=True)
def flags():
    kept = read_determinism_flags()
    yield
    kept.restore()


def draws():
    return [random.random(), float(np.random.random()), float(torch.rand(()))]


def everything():
    python, numpy, streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
    return (
        python,
        [str(part) for part in numpy],
        streams.tolist(),
        torch.initial_seed(),
        read_determinism_flags(),
    )


SEEDS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1])


@given(SEEDS)
def test_a_plain_call_takes_effect_at_once_and_the_same_seed_gives_the_same_draws(seed):
    ts.seed_everything(seed)
    first = draws()
    ts.seed_everything(seed)
    assert draws() == first


def test_the_streams_are_those_of_the_three_calls_by_hand():
    ts.seed_everything(7)
    seen = draws()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert draws() == seen


def test_seeds_that_differ_above_32_bits_alone_differ_in_python_and_numpy_and_not_in_torch_on_the_cpu():
    ts.seed_everything(5)
    first = draws()
    ts.seed_everything(5 + 2**32)
    assert [mine != other for mine, other in zip(draws(), first, strict=True)] == [True, True, False]


@settings(deadline=None, max_examples=30)  # the first deterministic call imports torch's compiler
@given(SEEDS, st.sampled_from([True, False, "warn"]), st.booleans())
def test_a_block_puts_everything_back_whatever_happens_inside(seed, deterministic, fails):
    os.environ.pop(CUBLAS_VARIABLE, None)
    before = everything()
    try:
        with ts.seed_everything(seed, deterministic=deterministic):
            draws()
            torch.backends.cudnn.benchmark = True
            if fails:
                raise KeyError("inside")
    except KeyError:
        assert fails
    assert everything() == before
    assert CUBLAS_VARIABLE not in os.environ


def test_blocks_nest_and_the_outer_stream_goes_on():
    with ts.seed_everything(1):
        expected = draws()
    with ts.seed_everything(1, deterministic=True):
        with ts.seed_everything(2, deterministic="warn") as inner:
            assert inner.flags.warn_only
            assert draws() != expected
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert draws() == expected


def test_an_object_has_one_block():
    seeded = ts.seed_everything(1)
    with seeded, pytest.raises(OptionError, match="Call it anew"), seeded:
        pass


def test_a_variable_of_the_user_is_kept_and_put_back(monkeypatch):
    monkeypatch.setenv(CUBLAS_VARIABLE, ":16:8")
    with ts.seed_everything(0, deterministic=True) as seeded:
        assert seeded.flags.cublas_workspace_config == ":16:8"
        os.environ[CUBLAS_VARIABLE] = ":0:0"
    assert os.environ[CUBLAS_VARIABLE] == ":16:8"


def test_deterministic_sets_every_flag(monkeypatch):
    monkeypatch.delenv(CUBLAS_VARIABLE, raising=False)
    torch.backends.cudnn.benchmark = True
    with ts.seed_everything(0, deterministic=True) as seeded:
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark
        assert os.environ[CUBLAS_VARIABLE] == ":4096:8"
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
    assert seeded.flags.deterministic_algorithms
    assert [gap.name for gap in seeded.between_runs] in ([], ["hashes"])


def test_false_leaves_the_flags_and_says_that_algorithms_may_vary():
    torch.backends.cudnn.benchmark = True
    seeded = ts.seed_everything(0)
    assert torch.backends.cudnn.benchmark
    assert "algorithms" in [gap.name for gap in seeded.between_runs]


def test_too_late_for_cublas_is_said(monkeypatch):
    monkeypatch.delenv(CUBLAS_VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.warns(UserWarning, match="Seed before the first use of torch.cuda"):
        block = ts.seed_everything(0, deterministic=True)
    with block as seeded:
        assert "cublas" in [gap.name for gap in seeded.between_runs]


def test_a_workspace_with_which_cublas_varies_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv(CUBLAS_VARIABLE, ":0:0")
    torch.backends.cudnn.benchmark = True
    named = {gap.name: gap for gap in repeatability_gaps(read_determinism_flags(), in_time=True)}
    assert "':0:0'" in named["cublas"].says
    assert named["cudnn"].fix == "torch.backends.cudnn.benchmark = False"


class Card:
    """Stands for torch's module of an accelerator: two streams, started or not."""

    def __init__(self, started):
        self.started, self.streams = started, [1, 2]
        self.manual_seed_all = lambda seed: self.streams.__setitem__(slice(None), [seed] * 2)

    def is_initialized(self):
        return self.started

    def get_rng_state_all(self):
        return [torch.tensor(state) for state in self.streams]

    def set_rng_state_all(self, states):
        self.streams = [int(state) for state in states]


@pytest.fixture
def card(request, monkeypatch):
    made = Card(request.param)
    kind = types.SimpleNamespace(type="cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: kind)
    monkeypatch.setattr(torch, "get_device_module", lambda device: made)
    return made


@pytest.mark.parametrize("card", [True], indirect=True)
def test_the_streams_of_every_device_are_put_back(card):
    with ts.seed_everything(0) as seeded:
        card.streams = [8, 9]
    assert card.streams == [1, 2]
    assert seeded.streams == ("python", "numpy", "torch", "torch, every cuda device")


@pytest.mark.parametrize("card", [False], indirect=True)
def test_a_device_that_starts_inside_goes_on_from_the_seed_that_was_set_before(card):
    torch.manual_seed(11)
    with ts.seed_everything(0):
        card.started = True
    assert card.streams == [11, 11]


class Draws(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([index, *draws()], dtype=torch.float64)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_the_generator_gives_the_same_order_and_workers_whatever_was_drawn_before(workers):
    def epoch(seeded, number=0):
        loader = DataLoader(Draws(), shuffle=True, num_workers=workers, generator=seeded.generator(number))
        return torch.cat(list(loader))

    with ts.seed_everything(3) as seeded:
        first = epoch(seeded)
    with ts.seed_everything(3) as seeded:
        other = epoch(seeded, 1)
    with ts.seed_everything(3) as seeded:
        if workers:  # in the loader's own process samples draw from the global streams
            draws()
        assert torch.equal(epoch(seeded), first)
    assert not torch.equal(other, first)
    assert len({tuple(row) for row in first[:, 1:].tolist()}) == 4


@pytest.mark.parametrize("seed", [True, 1.0, "1", None, np.float64(1), np.bool_(True), [1]])
def test_what_is_no_whole_number_is_refused(seed):
    with pytest.raises(OptionError, match="a whole number is asked for"):
        ts.seed_everything(seed)


@pytest.mark.parametrize("seed", [-1, 2**64, -(2**63), np.int64(-1)])
def test_seeds_out_of_range_are_refused_with_the_range_and_change_nothing(seed):
    before = everything()
    with pytest.raises(OptionError, match=r"from 0 to 2\*\*64 - 1"):
        ts.seed_everything(seed)
    assert everything() == before


def test_numpys_whole_numbers_are_seeds():
    assert type(check_seed(np.uint64(2**64 - 1))) is int


@pytest.mark.parametrize("deterministic", ["yes", None, 2])
def test_an_unknown_way_of_being_deterministic_is_refused(deterministic):
    with pytest.raises(OptionError, match="There are: False, True, warn"):
        ts.seed_everything(0, deterministic=deterministic)


def test_a_run_refuses_the_same_seeds(tmp_path):
    for seed in (True, -1, 2**64, 0.5):
        with pytest.raises(OptionError, match="seed="):
            ts.Run(tmp_path / "run", seed=seed, progress=False)


def test_the_list_of_operations_is_read_from_the_installed_torch(monkeypatch):
    here = operations_without_deterministic_form()
    assert any("MaxUnpool2d" in operation for operation in here)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    everywhere = operations_without_deterministic_form()
    assert set(here) < set(everywhere)
    assert any("CTCLoss" in operation for operation in everywhere)
    assert not any("Conv2d" in operation for operation in everywhere)  # it acts deterministically
    assert not any(":" in operation.partition(":")[0] for operation in everywhere)
    monkeypatch.setattr(torch.use_deterministic_algorithms, "__doc__", None)
    assert operations_without_deterministic_form() == ()


def test_hashes_are_named_unless_python_was_started_with_a_seed_for_them(monkeypatch):
    randomised = bool(
        sys.flags.hash_randomization
    )  # False where these tests were started with PYTHONHASHSEED=0
    for variable, expected in (("random", randomised), ("0", False), ("5", False)):
        monkeypatch.setenv("PYTHONHASHSEED", variable)
        with ts.seed_everything(0) as seeded:
            assert ("hashes" in {gap.name for gap in seeded.between_runs}) is expected


def test_the_report_becomes_json_text_and_a_cell():
    seeded = ts.seed_everything(4, deterministic=False)
    document = json.loads(json.dumps(seeded.to_dict()))
    assert (document["schema_version"], document["seed"]) == (1, 4)
    assert "_before" not in document
    assert "threads" in {gap["name"] for gap in document["between_machines"]}
    assert "may differ between two runs here" in str(seeded)
    assert seeded._repr_html_().startswith("<pre")


@pytest.mark.parametrize("number", ["1", -1, True, 1.5])
def test_generators_are_counted(number):
    with ts.seed_everything(0) as seeded, pytest.raises(ts.OptionError, match=r"Seeded\.generator\(number="):
        seeded.generator(number)
