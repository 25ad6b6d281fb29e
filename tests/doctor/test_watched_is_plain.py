# SPDX-License-Identifier: Apache-2.0
"""The law "Watched is plain": what watches a training changes nothing in it, however the model holds its randomness."""

import contextlib
import sqlite3

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.private_generators import HOLDERS, SOURCES, noisy_model

import truestep as ts
from truestep.doctor.runtime.watch import Watch, WatchOptions

UPDATES = 6
PROGRAMS = st.tuples(st.sampled_from(sorted(HOLDERS)), st.sampled_from(SOURCES))


def batches():
    made = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 4, generator=made), torch.arange(8) % 3) for _ in range(UPDATES)]


def in_run(directory, program, doctor):
    """Return the weights after six updates of a run."""
    run = ts.Run(directory, seed=0, doctor=doctor, progress=False, quiet=True)
    net = run.learner(noisy_model(*program), lambda p: torch.optim.SGD(p, lr=0.1))
    with contextlib.closing(run):
        for batch in batches():
            net.update(lambda batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none"), batch)
    return [each.detach().clone() for each in net.parameters()]


def by_hand(program, watched):
    """Return the weights after six steps of a loop written by hand."""
    net = noisy_model(*program)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with watched:
        for x, y in batches():
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    return [each.detach().clone() for each in net.parameters()]


def with_probes():
    """The watch of `truestep doctor --thorough`, whose checks apply and train the model once more."""
    return Watch(WatchOptions(probe=True, thorough=True, is_of_command=True))


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@settings(max_examples=20)
@given(PROGRAMS)
def test_drawn_programs_end_with_the_same_bits_in_a_run(tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("runs")
    watched, plain = (in_run(folder / str(doctor), program, doctor) for doctor in (True, False))
    assert same(watched, plain)


@settings(max_examples=16)
@given(PROGRAMS, st.sampled_from([ts.watch, with_probes]))
def test_drawn_programs_end_with_the_same_bits_under_a_watch(program, watching):
    assert same(by_hand(program, watching()), by_hand(program, contextlib.nullcontext()))


def test_a_watch_calls_a_model_no_more_often_than_its_loop_does():
    net, calls = torch.nn.Linear(4, 3), []
    net.register_forward_pre_hook(lambda *_: calls.append(1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with ts.watch():
        for x, y in batches():
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    assert len(calls) == UPDATES


class Busy(torch.nn.Module):
    """Counts, writes, prints, reads on and takes from a worker's queue in its forward."""

    def __init__(self, folder):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.calls, self.folder = torch.nn.Linear(4, 3), [], folder
        (folder / "numbers.txt").write_text("0123456789" * 20)
        self.numbers = (folder / "numbers.txt").open()
        self.log = (folder / "log.txt").open("w")
        self.database = sqlite3.connect(folder / "calls.sqlite")
        self.database.execute("create table calls (number)")
        self.norm = torch.nn.BatchNorm1d(4)
        OUTSIDE.append(self.norm)

    def forward(self, x):
        self.calls.append(len(self.calls))
        self.log.write(f"{self.numbers.read(3)}\n")
        torch.save(self.calls, self.folder / "calls.pt")
        self.database.execute("insert into calls values (?)", (len(self.calls),))
        self.database.commit()
        print("applied", len(self.calls))
        return self.layer(OUTSIDE[-1](x))


OUTSIDE = []


@pytest.mark.parametrize("num_workers", [0, 2])
def test_files_positions_output_and_workers_are_those_of_the_plain_run(num_workers, tmp_path, capfd):
    seen = []
    for name, watched in [("plain", contextlib.nullcontext()), ("probed", with_probes())]:
        folder = tmp_path / name
        folder.mkdir()
        net = Busy(folder)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        samples = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.arange(32) % 3)
        loader = torch.utils.data.DataLoader(samples, batch_size=8, num_workers=num_workers)
        with watched:
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
        for each in (net.log, net.numbers, net.database):
            each.close()
        files = {each.name: each.read_bytes() for each in folder.iterdir() if each.suffix != ".sqlite"}
        with contextlib.closing(sqlite3.connect(folder / "calls.sqlite")) as database:
            rows = database.execute("select * from calls").fetchall()
        weights = {key: each.tolist() for key, each in net.state_dict().items()}
        seen.append((files, rows, weights, net.calls, capfd.readouterr()))
    assert seen[0] == seen[1]
