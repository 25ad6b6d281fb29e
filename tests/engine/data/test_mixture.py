# SPDX-License-Identifier: Apache-2.0
"""Mixtures: each sample's source is drawn by seed and position alone, and each source comes once before it comes again."""

import json
import random
from collections import Counter
from itertools import chain, islice
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.streams import Buffered

import truestep as ts
from truestep.core.errors import DataError, OptionError
from truestep.engine.data import DataOptions, mixture_order, open_source
from truestep.engine.processes.batch_row_shares import RankShare


class ByNumber(torch.utils.data.Dataset):
    def __init__(self, first, size):
        self.first, self.size = first, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor(self.first + index)


def by_epoch(first, size):
    """Return a stream that is shuffled by its epoch."""

    def samples(epoch):
        numbers = [*range(first, first + size)]
        random.Random(epoch).shuffle(numbers)
        yield from map(torch.tensor, numbers)

    return samples


class Kept(Buffered):
    """A stream with a buffer, all of which its state keeps."""

    def __init__(self, first, size):
        super().__init__(size, 5, keeps=("held", "draw"))
        self.first = first

    def __iter__(self):
        yield from (torch.tensor(self.first + number) for number in super().__iter__())


KINDS = {
    "columns": lambda first, size: torch.arange(first, first + size),
    "by number": ByNumber,
    "stream": by_epoch,
    "stream with a state": Kept,
}
FIRST = 1000  # of each source's numbers, times its place


def opened(sizes, kinds, weights, *, share=None, at_end="again", **options):
    sources = {
        str(place): KINDS[kind](FIRST * place, size)
        for place, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
    }
    mixture = ts.Mixture(sources, weights=weights, at_end=at_end)
    options = {"num_workers": 0, **options}
    return open_source(mixture, DataOptions(**options), seed=3, share=share or RankShare())


def read(source, epoch=0, start=0, most=None):
    return [batch.tolist() for batch in islice(source.batches(epoch, start), most)]


# a few batches go over several stretches, where thousands of a source of three samples would be drawn at once
short_stretches = mock.patch.object(mixture_order, "POSITIONS_AT_ONCE", 64)
# a state is tried in a process of its own: in tests further below
SOURCES = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([*KINDS][:3])), min_size=1, max_size=3)
NUMBERS = SOURCES.map(
    lambda found: [(size, kind) for size, kind in found if "stream" not in kind] or [(7, "by number")]
)


@st.composite
def mixtures(draw, sources=SOURCES):
    found = draw(sources)
    names = [str(place) for place in range(len(found))]
    shares = draw(st.lists(st.integers(1, 5), min_size=len(names), max_size=len(names)))
    fixed = dict(zip(names, shares, strict=True))
    weights = (
        (lambda step: {name: share + step % 3 for name, share in fixed.items()})
        if draw(st.booleans())
        else fixed
    )
    options = {"batch_size": draw(st.integers(1, 12)), "at_end": draw(st.sampled_from(["again", "stop"]))}
    if all("stream" not in kind for _, kind in found):
        options["shuffle"] = draw(st.sampled_from([False, True, ts.BlockShuffle(block=3, window=2)]))
    sizes, kinds = zip(*found, strict=True)
    return (sizes, kinds, weights), options


@short_stretches
@settings(max_examples=40, deadline=None)
@given(mixtures(), st.integers(0, 2))
def test_each_sample_comes_once_before_any_of_its_source_comes_again(drawn, epoch):
    given_, options = drawn
    numbers = [*chain(*read(opened(*given_, **options), epoch, most=20))]
    for place, size in enumerate(given_[0]):
        mine = [number - FIRST * place for number in numbers if number // FIRST == place]
        passes = [mine[at : at + size] for at in range(0, len(mine), size)]
        assert all(sorted(each) == [*range(size)] for each in passes[:-1])
        assert all(len({*each}) == len(each) for each in passes)
        assert options["at_end"] == "again" or len(passes) <= 1


@short_stretches
@settings(max_examples=40, deadline=None)
@given(mixtures(), st.integers(0, 8), st.integers(1, 3))
def test_the_samples_are_the_same_on_any_number_of_ranks_from_every_start(drawn, start, num_ranks):
    given_, options = drawn
    whole = read(opened(*given_, **options), most=14)
    parts = []
    for rank in range(num_ranks):
        source = opened(*given_, share=RankShare(rank, num_ranks), **options)
        parts.append(read(source, start=start, most=14 - start))
    assert [[*chain(*rows)] for rows in zip(*parts, strict=True)] == whole[start:]


@short_stretches
@settings(max_examples=25, deadline=None)
@given(mixtures(), st.integers(1, 12))
def test_a_place_that_was_kept_gives_the_same_rest(drawn, stop):
    given_, options = drawn
    whole = read(opened(*given_, **options), most=16)
    source = opened(*given_, **options)
    begun = source.batches(0)
    stop = len([*islice(begun, stop)])
    state = json.loads(json.dumps(source.state_dict())) if stop else {}
    resumed = opened(*given_, **options)
    resumed.load_state_dict(state)
    assert read(resumed, start=stop, most=16 - stop) == whole[stop:]
    assert sum(resumed.drawn().values()) == sum(map(len, whole))


def test_each_pass_of_a_source_has_an_order_of_its_own():
    passes = read(opened((20,), ("by number",), {"0": 1}, batch_size=20, shuffle=True), most=3)
    assert len({tuple(each) for each in passes}) == 3
    assert {tuple(sorted(each)) for each in passes} == {tuple(range(20))}


@pytest.mark.parametrize("kind", ["by number", "stream with a state"])
def test_workers_change_nothing_of_what_is_by_number_and_a_stream_goes_on_with_its_own(kind):
    given_ = ((30, 20), ("by number", kind), {"0": 2, "1": 1})
    num_workers = (
        2 if kind == "by number" else 1
    )  # each sample of a stream on its way is an open file, and few may be open
    whole, source = (opened(*given_, batch_size=6, num_workers=number) for number in (0, num_workers))
    found = read(source, most=12)
    assert kind != "by number" or found == read(whole, most=12)
    if kind == "by number":
        assert read(source, start=5, most=7) == found[5:]
    else:
        begun = source.batches(0)
        [*islice(begun, 5)]
        state = source.state_dict()
        source.close()  # few files may be open
        again = opened(*given_, batch_size=6, num_workers=num_workers)
        again.load_state_dict(state)
        assert read(again, start=5, most=7) == found[5:]
        again.close()
    source.close()


@pytest.mark.parametrize("scheduled", [False, True])
def test_shares_are_within_one_percent_of_the_weights_over_100_000_samples(scheduled):
    shares = {"0": 0.7, "1": 0.2, "2": 0.1}
    source = opened(
        (999, 777, 10_000),
        ["columns"] * 3,
        (lambda step: shares) if scheduled else shares,
        batch_size=500,
        shuffle=True,
    )
    count = Counter(
        number // FIRST
        for batch in islice(source.batches(0), 200)
        for number in batch.clamp(max=2999).tolist()
    )
    for name, share in shares.items():
        assert count[int(name)] / 100_000 == pytest.approx(share, abs=0.01)
        assert source.drawn()[name] == count[int(name)]


def test_weights_that_change_are_not_asked_for_what_was_drawn_before():
    asked = []

    def weights(step):
        asked.append(step)
        return {"0": 1, "1": step}

    given_ = ((30, 30), ("by number", "by number"), weights)
    source = opened(*given_, batch_size=4)
    [*islice(source.batches(0), 50)]
    resumed = opened(*given_, batch_size=4)
    resumed.load_state_dict(source.state_dict())
    asked.clear()
    next(resumed.batches(0, 50))
    assert {*asked} == {50}


def train(directory, stream=False, stop=None, weights=None):
    seen = []
    with ts.Run(
        directory, progress=False, log_every=2, saving=ts.Saving(background=False, every_steps=3)
    ) as run:
        net = run.learner(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1e-5))
        web = Kept(0, 600) if stream else ByNumber(0, 50)
        mixture = ts.Mixture(
            {"web": web, "code": ByNumber(1000, 30)}, weights=weights or {"web": 3, "code": 1}
        )
        mixed = run.data(mixture, batch_size=32 if stream else 8)
        for _ in run.epochs(2):
            for batch in run.batches(mixed, limit=10):
                net.update(lambda batch: net(batch.float()[:, None]).square().squeeze(1), batch)
                seen.append(batch.tolist())
                if run.step == stop:
                    raise KeyboardInterrupt
    return seen


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_goes_on_with_a_mixture_and_its_log_says_what_was_drawn(tmp_path, capsys, stream):
    whole = train(tmp_path / "whole", stream)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", stream, stop=14)
    capsys.readouterr()
    rest = train(tmp_path / "run", stream)
    assert rest == whole[-len(rest) :]
    assert len(rest) < 20
    said = capsys.readouterr().err
    done = Counter(number // 1000 for batch in whole[: 20 - len(rest)] for number in batch)
    assert f"'mixed': goes on behind {done[0]} of 'web', {done[1]} of 'code'" in said
    assert ("'web' goes on from its own state" in said) == stream
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    drawn = {line["step"]: line["values"]["drawn/web"] for line in lines if "drawn/web" in line["values"]}
    for step, number in drawn.items():
        assert number == sum(each < 1000 for batch in whole[:step] for each in batch)
    assert [*drawn] == [*range(2, 21, 2)]


def test_other_weights_are_another_mixture(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, stop=14)
    with pytest.raises(DataError, match=r"'mixed' is not what .*web was 3, is 1"):
        train(tmp_path, weights={"web": 1, "code": 1})


def web():
    return ByNumber(0, 10)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ts.Mixture([web()], weights=[1]), "give data sets by name"),
        (lambda: ts.Mixture({"a": web()}, weights={"b": 1}), r"\['b'\]: give one number for each of \['a'\]"),
        (lambda: ts.Mixture({"a": web()}, weights={"a": -1}), "finite numbers of at least 0"),
        (lambda: ts.Mixture({"a": web()}, weights={"a": 0}), "one above 0"),
        *(
            (
                lambda weight=weight: ts.Mixture({"a": web(), "b": web()}, weights={"a": weight, "b": 1e308}),
                "finite numbers",
            )
            for weight in (None, "x", "0.3", 1j, [1], torch.ones(2), 10**400, np.inf, 1e308)
        ),
        (lambda: ts.Mixture({0: web(), "b": web()}, weights={0: 1, "b": 1}), "Write '0', in sources"),
        (
            lambda: read(opened((5,), ["by number"], lambda: {"0": 1}, batch_size=2)),
            r"Write def weights\(batch\)",
        ),
        (lambda: ts.Mixture({"a": web()}, weights={"a": 1}, at_end="begin"), "none of: 'again', 'stop'"),
        (
            lambda: ts.Mixture({"a": torch.utils.data.DataLoader(web())}, weights={"a": 1}),
            "give the data sets themselves",
        ),
        (
            lambda: read(open_source(ts.Mixture({"a": web()}, weights={"a": 1}), seed=0)),
            "batch_size is missing",
        ),
        (
            lambda: opened((5,), ["by number"], {"0": 1}, batch_size=2, by_length=[1] * 5),
            "by_length= can't be asked of a mixture",
        ),
        (
            lambda: opened((5,), ["by number"], {"0": 1}, batch_size=2, per_rank=True),
            "per_rank= can't be asked",
        ),
        (
            lambda: read(opened((5,), ["by number"], lambda step: {"0": np.nan}, batch_size=2)),
            "weights at batch 0",
        ),
        (
            lambda: open_source(
                ts.Mixture({"a": "c.tar"}, weights={"a": 1}), DataOptions(batch_size=2), seed=0
            ),
            "'a' of the mixture: ",
        ),
        (
            lambda: opened((5,), ["by number"], {"0": 1}, batch_size=2).made_for_evaluation(),
            "which has no end",
        ),
    ],
)
def test_what_is_no_mixture_says_what_to_write(make, told):
    with pytest.raises((OptionError, DataError), match=told):
        make()


def test_an_error_in_a_schedule_names_the_batch():
    planned = {0: {"0": 1}}
    with pytest.raises(KeyError) as caught:
        read(opened((5,), ["by number"], lambda batch: planned[batch], batch_size=2))
    assert "was asked for batch 1." in caught.value.__notes__[0]


def test_what_it_costs_that_every_rank_reads_all_of_a_mixture_of_streams_is_told():
    given = [4, 4], ["stream", "stream"], {"0": 1, "1": 1}
    whole, shared = (opened(*given, share=RankShare(0, size), batch_size=2) for size in (1, 3))
    assert whole.what_it_costs() is None
    assert (
        shared.what_it_costs()
        == "each of 3 ranks reads all of its sources and takes its own rows, 3 times the reading"
    )
