# SPDX-License-Identifier: Apache-2.0
"""Loops with Accelerate that accumulate, count and iterate by hand: stopped at each batch and gone on with, in several habits."""

import json

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

LOOPS = """
import contextlib, io, json, shutil
import accelerate, torch, truestep as ts
from torch.utils.data import DataLoader
from tqdm import tqdm

ROWS = torch.linspace(0, 1, 36 * 4).reshape(36, 4)  # nine batches: an accumulation over two passes
EPOCHS = 3

class Stop(BaseException):
    pass

class Loop:
    def __init__(self, folder, every, stop_at):
        accelerate.utils.set_seed(1)
        self.accelerator = accelerate.Accelerator(cpu=True)
        nets = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1)) for _ in range(2)]
        optimizers = [torch.optim.AdamW(net.parameters(), lr=0.02) for net in nets]
        made = self.accelerator.prepare(*nets, *optimizers, DataLoader(ROWS, 4, shuffle=True))
        (self.net, self.other), (self.optimizer, self.other_optimizer), loader = made[:2], made[2:4], made[4]
        self.exact = ts.accelerate.ExactResume(self.accelerator, loader, folder, every_n_batches=every)
        self.seen, self.stop_at = 0, stop_at

    def backward(self, batch):
        if self.seen == self.stop_at:
            raise Stop
        self.seen += 1
        self.accelerator.backward(self.net(batch).square().mean())

    def step(self, optimizer=None):
        (optimizer or self.optimizer).step()
        (optimizer or self.optimizer).zero_grad()

def plain(loop):
    for batch in loop.exact:
        loop.backward(batch); loop.step()

def zeroed_first(loop):
    for batch in loop.exact:
        loop.optimizer.zero_grad(); loop.backward(batch); loop.optimizer.step()

def by_index(loop):
    for i, batch in enumerate(loop.exact, loop.exact.batch):
        loop.backward(batch)
        if (i + 1) % 2 == 0:
            loop.step()

def by_index_and_tail(loop):
    for i, batch in enumerate(loop.exact, start=loop.exact.batch):
        loop.backward(batch)
        if (i + 1) % 4 == 0 or i + 1 == len(loop.exact):
            loop.step()

def by_progress_bar(loop):
    bar = tqdm(loop.exact, disable=False)
    for i, batch in enumerate(bar, loop.exact.batch):
        loop.backward(batch)
        if i % 2:
            loop.step()

def by_counter(loop):
    done = 0
    for batch in loop.exact:
        loop.backward(batch)
        done += 1
        if done == 3:
            loop.step(); done = 0

def zeroed_to_zeros(loop):
    for i, batch in enumerate(loop.exact, loop.exact.batch):
        loop.backward(batch)
        if i % 3 == 2:
            loop.optimizer.step(); loop.optimizer.zero_grad(set_to_none=False)

def step_at_the_top(loop):
    for i, batch in enumerate(loop.exact, loop.exact.batch):
        if i % 2 == 0:
            loop.step()
        loop.backward(batch)

def rarely_stepped(loop):
    for i, batch in enumerate(loop.exact, loop.exact.batch):
        loop.backward(batch); loop.step()
        loop.accelerator.backward(loop.other(batch).square().mean())
        if i == 8:
            loop.step(loop.other_optimizer)

def adversarial(loop):
    for batch in loop.exact:
        loop.optimizer.zero_grad(); loop.backward(batch); loop.optimizer.step()
        loop.other_optimizer.zero_grad()
        loop.accelerator.backward((loop.net(loop.other(batch).expand(-1, 4))).mean())
        loop.other_optimizer.step()

def never_stepped(loop):
    for batch in loop.exact:
        loop.optimizer.zero_grad(); loop.backward(batch); loop.optimizer.step()
        loop.accelerator.backward(loop.other(batch).square().mean())

def left_out(loop):
    for batch in loop.exact:
        if batch[0, 0] > 0.6:
            continue
        loop.optimizer.zero_grad(); loop.backward(batch); loop.optimizer.step()

def kept_iterator(loop):
    batches = iter(loop.exact)
    while (batch := next(batches, None)) is not None:
        loop.backward(batch); loop.step()

def looked_at_and_kept(loop):
    loop.first = iter(loop.exact)
    next(loop.first)
    for batch in loop.exact:
        loop.backward(batch); loop.step()

def looked_at_and_dropped(loop):
    first = iter(loop.exact)
    next(first)
    for batch in loop.exact:
        loop.backward(batch); first = None; loop.step()

def another_kept(loop):
    loop.kept = [*getattr(loop, "kept", ()), iter(loop.exact)]
    for batch in loop.exact:
        loop.backward(batch); loop.step()

RIGHT = (plain, zeroed_first, by_index, by_index_and_tail, by_progress_bar, by_counter, zeroed_to_zeros, step_at_the_top,
    rarely_stepped, adversarial, never_stepped, left_out, kept_iterator, looked_at_and_kept, looked_at_and_dropped, another_kept)

def summed_up(loop):
    sums = []
    for batch in loop.exact:
        loop.backward(batch); loop.step(); sums.append(1.0)
    if loop.seen == loop.stop_at:
        raise Stop  # below the loop, in a validation say
    sum(sums) / len(sums)

SUMMED = (summed_up,)

def from_0(loop):
    for i, batch in enumerate(loop.exact):
        loop.backward(batch); loop.step()

def from_1(loop):
    for i, batch in enumerate(loop.exact, 1):
        loop.backward(batch); loop.step()
        if i == 7:
            break

def from_0_in_a_bar(loop):
    for i, batch in enumerate(tqdm(loop.exact)):
        loop.backward(batch); loop.step()

def bar_around(loop):
    for i, batch in tqdm(enumerate(loop.exact)):
        loop.backward(batch); loop.step()

COUNTS = (from_0, from_1, from_0_in_a_bar, bar_around)

def nested(loop):
    for batch in loop.exact:
        loop.backward(batch); loop.step(); next(iter(loop.exact))

def nested_in_silence(loop):
    for batch in loop.exact:
        for other in loop.exact:
            loop.backward(other); loop.step()

REFUSED = (nested, nested_in_silence)

def train(habit, folder, every, stop_at=-1):
    loop = Loop(folder, every, stop_at)
    try:
        for _ in range(loop.exact.epoch, EPOCHS):
            habit(loop)
    finally:
        loop.exact.close()
    return [each.tolist() for net in (loop.net, loop.other) for each in net.parameters()]

def end_of(*given):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            end = train(*given)
        except Stop:
            end = "stopped"
        except ts.OptionError as error:
            end = str(error)
    lines = [part for part in said.getvalue().splitlines() if "truestep: " in part and "going on from" not in part]
    return end, " ".join(lines)

told = {}
for habit in globals()[KIND]:
    for every, stop_at in PLACES:
        shutil.rmtree("whole", ignore_errors=True), shutil.rmtree("killed", ignore_errors=True)
        whole, first = end_of(habit, "whole", every)
        _, second = end_of(habit, "killed", every, stop_at)
        again, third = end_of(habit, "killed", every)
        told[f"{habit.__name__}, {every}, {stop_at}"] = {
            "end": again if isinstance(again, str) else ("same" if again == whole else "other"), "before": first + second,
            "said": third}
print(json.dumps(told))
"""


def told_of(kind, folder, *places):
    done = frameworks.run("-c", f"KIND, PLACES = {kind!r}, {places}\n{LOOPS}", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_loops_that_accumulate_or_iterate_by_hand_end_with_the_same_bits(tmp_path):
    for name, told in told_of("RIGHT", tmp_path, (1, 5), (2, 13), (1, 20)).items():
        assert told == {"end": "same", "before": "", "said": ""}, (name, told)


def test_a_kill_below_the_loop_leaves_batches_to_sum_up(tmp_path):
    for name, told in told_of("SUMMED", tmp_path, (1, 9), (9, 18)).items():
        assert told == {"end": "same", "before": "", "said": ""}, (name, told)


def test_a_count_that_begins_anew_behind_a_resume_is_told_of(tmp_path):
    told = told_of("COUNTS", tmp_path, (1, 5), (2, 13))
    for name, each in told.items():
        assert not each["before"], (name, each)
        assert each["said"] == "" or "Write enumerate(exact, exact.batch)." in each["said"], (name, each)
    # at some of the places an epoch had just begun, or its count is right by chance
    said = {name.partition(",")[0] for name, each in told.items() if each["said"]}
    assert said == {name.partition(",")[0] for name in told}


def test_a_loop_over_it_within_another_is_refused(tmp_path):
    for name, told in told_of("REFUSED", tmp_path, (1, 5)).items():
        assert "second loop over exact" in told["end"], (name, told)
