# SPDX-License-Identifier: Apache-2.0
"""How a run comes to its mirror: an option, the environment, a recipe's flag; and what `resume=` does where the disk is gone."""

import gc
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.core.errors import RunDirectoryError


def trained(directory, *, epochs=1, rate=0.1, **options) -> ts.Run:
    run = ts.Run(directory, seed=0, quiet=True, progress=False, config={"rate": rate}, **options)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=rate))
    data = run.data(torch.ones(8, 2), batch_size=4)
    with run:
        for _ in run.epochs(epochs):
            for rows in run.batches(data):
                net.update(lambda rows: net(rows).square().sum(1), rows)
    return run


def has_commit(place: Path) -> bool:
    return any((place / "commits").rglob("*-step-*"))


@pytest.mark.parametrize("is_absolute", [False, True])
def test_the_environment_says_where_and_an_empty_directory_goes_on(tmp_path, monkeypatch, is_absolute):
    monkeypatch.setenv("TRUESTEP_MIRROR", (tmp_path / "store").as_uri())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    directory = tmp_path / "scratch" / "x" if is_absolute else Path("runs/x")
    trained(directory)
    assert has_commit(tmp_path / "store" / ("x" if is_absolute else "runs/x"))
    shutil.rmtree(directory)
    assert trained(directory, epochs=3, resume="must").step == 6


def test_anew_beside_a_run_has_a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUESTEP_MIRROR", (tmp_path / "store").as_uri())
    monkeypatch.chdir(tmp_path)
    trained("runs/x")
    run = trained("runs/x", resume="anew")
    assert run.directory.name == "x-2"
    del run
    assert has_commit(tmp_path / "store" / "runs" / "x-2")
    gc.collect()  # a run of this process that is still there would write to its directory when another takes it over
    shutil.rmtree("runs")
    with pytest.raises(RunDirectoryError, match="holds a run already, and resume='anew' was asked for"):
        trained("runs/x", resume="anew")
    assert not Path("runs/x/config.json").exists()


def test_anew_at_an_address_that_holds_a_run_names_another(tmp_path):
    store = (tmp_path / "store").as_uri()
    trained(tmp_path / "x", mirror=store)
    for place in ("x", "empty"):
        with pytest.raises(RunDirectoryError, match=f'another address, ts.Run\\(..., mirror="{store}-2"\\)'):
            trained(tmp_path / place, mirror=store, resume="anew")
    run = trained(tmp_path / "x", mirror=f"{store}-2", resume="anew")
    assert has_commit(tmp_path / "store-2")
    assert run.step == 2


def test_another_configuration_is_refused_and_edited_goes_on(tmp_path):
    store = (tmp_path / "store").as_uri()
    trained(tmp_path / "a", mirror=store)
    with pytest.raises(RunDirectoryError, match=r"rate"):
        trained(tmp_path / "b", mirror=store, rate=0.2, epochs=2)
    run = trained(tmp_path / "c", mirror=store, rate=0.2, epochs=2, resume="edited")
    assert run.step == 4
    # refused or not, the place was given back: nobody waits for a lease
    assert trained(tmp_path / "d", mirror=store, rate=0.2, epochs=3).step == 6
