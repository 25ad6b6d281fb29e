# SPDX-License-Identifier: Apache-2.0
"""Runs that train on streams: stopped anywhere they go on exactly, or say what can't be kept before a sample is lost."""

import os
import random
import signal

import pytest
import torch
from support.streams import Buffered
from torch import nn

import truestep as ts


class ByEpoch(torch.utils.data.IterableDataset):
    """Its order is drawn from the epoch, as it should be."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = [*range(40)]
        random.Random(self.epoch).shuffle(order)
        yield from (torch.tensor([float(index)]) for index in order)


class ByClock(ByEpoch):
    """Shuffled anew whenever it is read, as by a buffer that is seeded from the clock."""

    def __iter__(self):
        self.epoch = random.SystemRandom().random()
        yield from super().__iter__()


def train(directory, data, *, stop=None, capsys=None, resume="auto", **options):
    """Return what was trained on; a signal comes in the body of batch `stop`."""
    seen = []
    with ts.Run(directory, progress=False, resume=resume, saving=ts.Saving(background=False)) as run:
        net = run.learner(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1e-5))
        stream = run.data(data, **{"batch_size": 4, **options})
        for _ in run.epochs(2):
            for batch in run.batches(stream):
                net.update(lambda batch: net(batch).squeeze(1).square(), batch)
                seen += batch.flatten().tolist()
                if run.step == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
        return seen, [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("stop", [1, 7, 10, 11, 19])
def test_a_stream_without_a_state_is_read_again_compared_and_exact(tmp_path, capsys, stop):
    whole, weights = train(tmp_path / "whole", ByEpoch())
    with pytest.raises(SystemExit):
        train(tmp_path / "run", ByEpoch(), stop=stop)
    capsys.readouterr()
    rest, resumed = train(tmp_path / "run", ByEpoch())
    assert rest == whole[4 * stop :]
    assert all(map(torch.equal, weights, resumed))
    said = capsys.readouterr().err
    assert "bit-identical" in said
    done = stop % 10
    told = f"'stream': re-reading {4 * done} samples ({done} batch{'es' * (done > 1)}) of its pass, each batch compared"
    assert (told in said) == (done > 0)


def test_a_stream_that_is_another_one_ends_the_run_before_a_sample_is_lost(tmp_path):
    with pytest.raises(SystemExit):
        train(tmp_path, ByClock(), stop=7)
    for _ in range(3):  # as often as a scheduler starts it: nothing of the run is given up
        with pytest.raises(ts.DataError, match="it differs from batch 1 on") as caught:
            train(tmp_path, ByClock())
        assert "some of the 28 samples of this pass" in str(caught.value)
    with pytest.warns(UserWarning, match="The run goes on with it as it is now"):
        seen, _ = train(tmp_path, ByClock(), resume="edited")
    assert len(seen) == 80 - 28


def test_another_number_of_workers_is_refused_where_there_is_no_state_either(tmp_path):
    class ByWorker(ByEpoch):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            number, count = (info.id, info.num_workers) if info else (0, 1)
            yield from [*super().__iter__()][number::count]

    with pytest.raises(SystemExit):
        train(tmp_path, ByWorker(), stop=7, num_workers=2)
    with pytest.raises(ts.DataError, match="Write num_workers=2 as before"):
        train(tmp_path, ByWorker())
    seen, _ = train(tmp_path, ByWorker(), num_workers=2)
    assert len(seen) == 80 - 28


class Rows(Buffered):
    def __iter__(self):
        yield from (torch.tensor([float(number)]) for number in super().__iter__())


@pytest.mark.parametrize(
    ("keeps", "told"),
    [
        (("held", "draw"), "'stream': goes on from its own state"),
        (
            (),
            "re-reading 36 samples (9 batches) of its pass, each batch compared with what was trained on: its own state gives",
        ),
        (
            ("held",),
            "its own state gives other batches: the 3 that were read behind it are not those that it gives now",
        ),
    ],
)
def test_a_state_is_used_where_it_is_all_of_it_and_otherwise_the_stream_is_read_again(
    tmp_path, capsys, keeps, told
):
    whole, weights = train(tmp_path / "whole", Rows(60, 7, keeps))
    with pytest.raises(SystemExit):
        train(tmp_path / "run", Rows(60, 7, keeps), stop=15 + 9)
    capsys.readouterr()
    rest, resumed = train(tmp_path / "run", Rows(60, 7, keeps))
    assert rest == whole[4 * (15 + 9) :]
    assert all(map(torch.equal, weights, resumed))
    said = capsys.readouterr().err
    assert "bit-identical" in said
    assert told in said


def test_what_was_found_of_a_state_is_among_the_choices(tmp_path):
    for keeps, found in (
        (("held", "draw"), "was tried: it gives the batches"),
        ((), "its own state gives other batches"),
    ):
        with ts.Run(tmp_path / str(keeps), progress=False) as run:
            stream = run.data(Rows(60, 7, keeps), batch_size=4)
            promise = [choice for choice in run.choices() if choice.name == "promise of stream"]
            assert "from its own state once that was tried" in promise[0].reason
            for _ in run.epochs(1):
                for _ in run.batches(stream):
                    pass
            promise = [choice for choice in run.choices() if choice.name == "promise of stream"]
            assert [found in choice.reason for choice in promise] == [True]


class ByPass:
    """Its order is one of how often it was read by this process, as with libraries whose loop counts its passes."""

    passes = 0

    def __iter__(self):
        order = [*range(40)]
        random.Random(self.passes).shuffle(order)
        self.passes += 1
        yield from (torch.tensor([float(index)]) for index in order)


@pytest.mark.parametrize(("data", "is_said"), [(ByPass, True), (ByEpoch, False)])
def test_a_later_pass_of_a_stream_that_is_not_told_which_it_is_can_t_be_promised(
    tmp_path, capsys, data, is_said
):
    with pytest.raises(SystemExit):
        train(tmp_path, data(), stop=10)
    capsys.readouterr()
    train(tmp_path, data())
    said = capsys.readouterr().err
    assert ("'stream': begins its pass 2, and nothing tells it so: can't be promised" in said) == is_said


def test_a_generator_may_become_the_function_that_makes_it(tmp_path):
    def rows():
        yield from (torch.tensor([float(number)]) for number in range(40))

    whole, _ = train(tmp_path / "whole", rows)
    with pytest.raises(SystemExit):
        train(tmp_path / "run", rows(), stop=7)
    rest, _ = train(tmp_path / "run", rows)
    assert rest == whole[4 * 7 :]
