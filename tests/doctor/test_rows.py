# SPDX-License-Identifier: Apache-2.0
"""What was trained on and evaluated on, as rows: prints tell rows apart, and trainings in many habits are judged by them.

The second line of a script in `rows` says what the checks on rows must find in it; the others only look wrong.
"""

import contextlib
import gc
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor.checks.data.trained_rows_evaluated import _EvaluationComparison
from truestep.doctor.finding import Place
from truestep.doctor.reporting.evidence_wording import evidence_sentences
from truestep.doctor.runtime.row_hashes import row_fingerprints, sampled_rows
from truestep.doctor.runtime.row_overlap import RowOverlap
from truestep.doctor.runtime.row_records import MOST_ROWS, RowBatch, RowPass
from truestep.doctor.watch_block import watch

SCRIPTS = sorted((Path(__file__).parent / "rows").glob("*.py"))
CODES = ["DATA040", "DATA041"]
KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.sliced(5)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_training_gives_what_its_rows_show(script):
    text = script.read_text("utf-8")
    random.seed(0)
    np.random.seed(0)
    with torch.random.fork_rng(), watch(select=CODES) as watched:
        torch.manual_seed(0)
        exec(compile(text, str(script), "exec"), {"__name__": "__main__"})
    assert [each.code for each in watched.findings] == text.splitlines()[1].removeprefix("# expect:").split()
    assert watched.failures == []


@pytest.mark.parametrize(("rows", "found"), [(40, ["DATA040"]), (160, [])])
def test_a_run_that_is_cut_short_is_asked_of_a_part_of_its_training_set_alone(rows, found):
    data = torch.utils.data.TensorDataset(x := torch.randn(160, 8), (x.sum(1) > 0).long())
    net = torch.nn.Linear(8, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with contextlib.suppress(OSError), watch(select=CODES) as watched:
        for _ in range(3):
            for inputs, targets in torch.utils.data.DataLoader(data, 16, shuffle=True):
                opt.zero_grad()
                torch.nn.functional.cross_entropy(net(inputs), targets).backward()
                opt.step()
            with torch.no_grad():
                for inputs, targets in torch.utils.data.DataLoader(
                    torch.utils.data.Subset(data, range(rows)), 20
                ):
                    print((net(inputs).argmax(1) == targets).sum().item())
        raise OSError
    assert [each.code for each in watched.findings] == found


@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.integers(1, 40), st.sampled_from([1, 3, 1024, 2500]))
@settings(max_examples=40, deadline=None)
def test_a_print_is_of_the_row_alone_whatever_stands_beside_it(seed, kind, count, width):
    made = torch.Generator().manual_seed(seed)
    rows = (torch.randn(count, width, generator=made) * 3).to(kind)
    order = torch.randperm(count, generator=made)
    whole = row_fingerprints(sampled_rows(rows))
    assert torch.equal(row_fingerprints(sampled_rows(rows[order])), whole[order])
    assert torch.equal(torch.cat([row_fingerprints(sampled_rows(each)) for each in rows.split(7)]), whole)


@given(st.integers(0, 2**32), st.integers(0, 15), st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_rows_that_differ_in_one_number_have_other_prints(seed, place, change):
    rows = torch.randint(-3, 4, (2, 16), generator=torch.Generator().manual_seed(seed)).float()
    rows[1] = rows[0]
    rows[1, place] += [1.0, 2.0**-20, -8.0][change]
    first, second = row_fingerprints(rows).tolist()
    assert first != second


def batch_of(prints):
    return RowBatch(0, 0, 0, None, 0, prints, 4, None, True, True, True, None, targets=prints + 1)


def test_of_too_many_rows_the_same_part_is_kept_in_every_epoch():
    kept = RowPass()
    rows = row_fingerprints(torch.arange(50_000)[:, None])
    for _ in range(4):
        for part in rows[torch.randperm(50_000)].split(1000):
            kept.add(batch_of(part))
    assert kept.num_rows <= MOST_ROWS
    found = torch.cat([each.inputs for each in kept.batches])
    assert (found.unique(return_counts=True)[1] == 4).all()
    assert all(torch.equal(each.inputs + 1, each.targets) for each in kept.batches)


def test_rows_keep_no_model_and_no_batch_alive():
    with watch(select=CODES) as watched:
        net = torch.nn.Linear(4, 2)
        x = torch.randn(64, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        net(x).sum().backward()
        opt.step()
        alive = [
            each
            for each in gc.get_objects()
            if type(each) is torch.Tensor and each.data_ptr() == x.data_ptr()
        ]
        assert [each for each in alive if each is not x] == []
    assert watched.failures == []


@pytest.mark.parametrize(
    ("looked_at", "loader", "by_chance", "told"),
    [
        (
            400,
            400,
            0.0,
            "73 of the 100 | 400 training examples. | has 400 examples. | Chance alone would give none.",
        ),
        (
            50,
            400,
            0.0,
            "At least 73 of the 100 | 50 training examples. | has 400 examples. | would give none.",
        ),
        (
            50,
            None,
            2.4,
            "At least 73 of the 100 | 50 training examples. | Chance alone would give at most 2.4.",
        ),
    ],
)
def test_an_overlap_is_told_with_how_many_were_compared_and_what_chance_gives(
    looked_at, loader, by_chance, told
):
    overlap = RowOverlap(100, looked_at, 73, by_chance, 73, loader)
    compared = _EvaluationComparison(
        Place("train.py", 1), overlap, of_classes=True, is_unsure=False, in_one_batch=False
    )
    said = f"{compared.told()} {evidence_sentences(compared.evidence())}"
    assert said.startswith(told.split(" | ")[0])
    assert [part for part in told.split(" | ") if part not in said] == []
    assert ("has 400 examples" in said) == (loader is not None)


def test_prints_are_made_once_for_the_rows_that_are_kept():
    """Each of a thousand evaluated batches is held against each other one: as arrays that took seconds behind a short run."""
    batch = RowBatch(0, 0, Place("a.py", 1), 0, 0, torch.arange(8), 1, None, False, True, True, None)
    assert batch.prints == set(range(8))
    assert batch.prints is batch.prints
    kept = RowPass(kept=2)
    kept.add(batch)
    assert batch.prints == {0, 2, 4, 6}
