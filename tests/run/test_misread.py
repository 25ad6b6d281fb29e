# SPDX-License-Identifier: Apache-2.0
"""`for i, batch in run.batches(source)` is refused where it would take a batch apart; other loops are as they were."""

import pytest
import torch

import truestep as ts
from truestep.run.loop_end_detection import add_explanation_note

X, Y = torch.rand(8, 3), torch.arange(8)


@pytest.fixture
def run(tmp_path):
    with ts.Run(tmp_path / "run", device="cpu", progress=False, quiet=True) as run:
        yield run


def numbered(run, source):
    for _ in run.epochs(1):
        for i, batch in run.batches(source):
            return i, batch
    return None


def numbered_pairs(run, source):
    for _ in run.epochs(1):
        for step, (x, y) in run.batches(source):
            return step, x, y
    return None


@pytest.mark.parametrize("loop", [numbered, numbered_pairs])
@pytest.mark.parametrize(
    "data", [(X, Y), {"x": X, "y": Y}, X[:, :2]], ids=["a pair", "a dict", "rows that are as many"]
)
def test_a_number_and_a_batch_are_refused(run, loop, data):
    source = run.data(data, batch_size=2)
    with pytest.raises(
        ts.OptionError, match=r"takes each batch apart .*\benumerate\(run\.batches\(source\)\)"
    ):
        loop(run, source)


def test_all_other_loops_are_as_they_were(run):
    pairs, numbers = run.data((X, Y), batch_size=4), run.data((Y, X), batch_size=4)
    seen = []
    for _ in run.epochs(1):
        for x, y in run.batches(pairs):
            seen.append((x.shape, y.shape))
        for i, rows in run.batches(numbers):  # a data set that numbers its examples
            seen.append((i.shape, rows.shape))
        for i, (x, y) in enumerate(run.batches(pairs)):
            seen.append((i, x.shape, y.shape))
    assert len(seen) == 6
    assert seen[-1][0] == 1


def test_a_loop_that_is_looked_at_can_be_left_as_any_other(run):
    source, other, seen, others = run.data((Y, X), batch_size=2), run.data((Y, X), batch_size=2), [], []
    for _ in run.epochs(1):
        for i, _rows in run.batches(source):
            seen.append(i.tolist())
            if len(seen) == 2:
                break
        seen += [i.tolist() for i, _rows in run.batches(source)]
        for numbers, _rows in run.batches(other):
            others.append(numbers.tolist())
            if len(others) == 2:
                break
        others += [numbers.tolist() for numbers, _rows in run.batches(other)]
    assert len(seen) > 4
    assert seen == others


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (
            lambda rows: rows,
            r"one tensor of shape \(4, 3\).*for x in run\.batches\(source\), or .*run\.data\(\(x, y\)",
        ),
        (lambda rows: {"image": rows, "label": rows}, r"a dict, .*'image', 'label'.*x = batch\['image'\]"),
    ],
)
def test_a_batch_that_is_no_pair_is_not_taken_apart(form, said, tmp_path):
    run = ts.Run(tmp_path, quiet=True, progress=False)
    data = run.data(form(torch.rand(8, 3)), batch_size=4)

    def loop():
        for x, y in run.batches(data):
            assert x is not y

    with pytest.raises(ts.OptionError, match=said):
        loop()


@pytest.mark.parametrize(
    "said", ["Torch not compiled with CUDA enabled", "Found no NVIDIA driver on your system."]
)
def test_a_batch_sent_to_a_card_that_is_not_there_is_told_of_the_runs_device(said):
    error = AssertionError(said)
    add_explanation_note(error)
    assert "on run.device already" in "".join(error.__notes__)
