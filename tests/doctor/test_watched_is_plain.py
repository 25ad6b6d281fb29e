# SPDX-License-Identifier: Apache-2.0
"""The law "Watched is plain": what watches a training changes nothing in it, however the model holds its randomness."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.private_generators import HOLDERS, SOURCES, noisy_model

import truestep as ts

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


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_private_generator_is_where_it_was_whoever_holds_it(holder, tmp_path):
    program = (holder, SOURCES[len(holder) % len(SOURCES)])
    watched, plain = (in_run(tmp_path / str(doctor), program, doctor) for doctor in (True, False))
    assert same(watched, plain)
    assert same(by_hand(program, ts.watch()), by_hand(program, contextlib.nullcontext()))


@settings(max_examples=20)
@given(PROGRAMS)
def test_drawn_programs_end_with_the_same_bits_in_a_run(tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("runs")
    watched, plain = (in_run(folder / str(doctor), program, doctor) for doctor in (True, False))
    assert same(watched, plain)


@given(PROGRAMS)
def test_drawn_programs_end_with_the_same_bits_under_a_watch(program):
    assert same(by_hand(program, ts.watch()), by_hand(program, contextlib.nullcontext()))


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
