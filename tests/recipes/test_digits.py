# SPDX-License-Identifier: Apache-2.0
"""The digits recipe from the command line: its bar, its report, and going on."""

import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import warm

from truestep.core.errors import OptionError, RunDirectoryError
from truestep.recipes.loading.find import find_recipe
from truestep.recipes.loading.parse import parse_recipe
from truestep.recipes.loading.start import start_recipe
from truestep.report.metrics import read_metrics

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")


def train(*arguments, cwd):
    return warm.run("-m", "truestep", "train", "digits", *arguments, cwd=cwd, timeout=200)


def accuracies(folder):
    lines = read_metrics(folder / "metrics.jsonl")
    return [line.values["accuracy"] for line in lines if "accuracy" in line.values]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Train in this process, in a folder of its own; threads and torch's stream are put back."""
    import torch

    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()

    def train_here(*arguments):
        return start_recipe(parse_recipe(find_recipe("digits"), arguments, name="digits"))

    with torch.random.fork_rng():
        yield train_here
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seeds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_the_seeds_name_at_least_98_5_per_cent_of_the_test_images(here, seeds):
    last = [accuracies(here("--seed", str(seed), "--out", f"runs/{seed}"))[-1] for seed in range(seeds)]
    assert seeds == 1 or len(set(last)) > 1  # five runs, not one run five times
    assert sum(last) / seeds >= 0.985


def test_the_same_seed_gives_the_same_run_and_another_seed_another(here):
    losses = {}
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        folder = here("--epochs", "2", "--seed", seed, "--out", name)
        losses[name] = [line.values.get("loss") for line in read_metrics(folder / "metrics.jsonl")]
    assert losses["a"] == losses["b"] != losses["c"]


def test_a_folder_goes_on_only_with_its_own_settings(here):
    for resume in ("never", "must"):
        here("--epochs", "1", "--out", "run", "--resume", resume)
    with pytest.raises(RunDirectoryError, match=r"lr: 0\.003 there, 0\.5 now"):
        here("--epochs", "1", "--lr", "0.5", "--out", "run")
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        here("--epochs", "1", "--out", "run", "--resume", "never")


def test_what_can_not_start_leaves_no_folder(here, tmp_path):
    with pytest.raises(OptionError, match="bf61"):
        here("--precision", "bf61")
    assert list((tmp_path / "runs" / "digits").iterdir()) == []


def test_a_run_says_where_its_report_is_and_gets_a_new_folder_each_time(tmp_path):
    for number in range(2):
        result = train("--epochs", "1", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        path = result.stdout.strip().removeprefix("Report: ")
        assert "accuracy" in (tmp_path / path).read_text("utf-8")
        assert "\x1b" not in result.stderr
        assert "epoch 1/1  step 23" in result.stderr
        assert len(list((tmp_path / "runs" / "digits").iterdir())) == number + 1


def test_ctrl_c_saves_says_where_and_exits_130(tmp_path):
    arguments = ["train", "digits", "--epochs", "1000", "--out", "run"]
    process = warm.Process("-m", "truestep", *arguments, cwd=tmp_path)
    file = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (file.exists() and file.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "stopped as asked" in process.error
    assert (tmp_path / "run" / "report.html").exists()


def test_a_mirror_keeps_the_run_and_an_empty_folder_goes_on(here, tmp_path):
    pytest.importorskip("obstore")
    store = (tmp_path / "store").as_uri()
    here("--epochs", "1", "--out", "first", "--mirror", store)
    Path("first").rename("lost")
    here("--epochs", "1", "--out", "second", "--mirror", store, "--resume", "must")
    assert Path("second/metrics.jsonl").read_bytes() == Path("lost/metrics.jsonl").read_bytes()


def test_a_mirror_for_a_folder_that_is_new_at_each_start_is_refused(here, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUESTEP_MIRROR", (tmp_path / "store").as_uri())
    with pytest.raises(OptionError, match=r"would begin anew\. Write --out runs/digits/x"):
        here("--epochs", "1")
    assert not [*tmp_path.iterdir()]
