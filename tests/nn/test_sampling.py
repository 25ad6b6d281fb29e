# SPDX-License-Identifier: Apache-2.0
"""Draws from logits have the probabilities that logits stand for, and never those of nothing."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import truestep as ts
from truestep.core.errors import BatchError, OptionError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def shares(logits, **options):
    drawn = ts.sample_logits(logits.expand(200_000, -1), generator=generator(), **options)[:, 0]
    return torch.bincount(drawn, minlength=logits.shape[-1]) / len(drawn)


LOGITS = torch.tensor([1.0, 2.0, 4.0, -1.0])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_shares_are_softmax_of_the_logits(temperature):
    torch.testing.assert_close(
        shares(LOGITS, temperature=temperature), (LOGITS / temperature).softmax(0), atol=0.005, rtol=0
    )


def test_top_k_and_top_p_keep_the_largest_and_share_the_rest_out():
    expected = LOGITS.softmax(0)
    two = torch.where(torch.tensor([False, True, True, False]), expected, 0)
    torch.testing.assert_close(shares(LOGITS, top_k=2), two / two.sum(), atol=0.005, rtol=0)
    assert float(expected[2]) > 0.8
    assert shares(LOGITS, top_p=0.8)[2] == 1  # the largest alone is enough
    torch.testing.assert_close(shares(LOGITS, top_p=0.9), two / two.sum(), atol=0.005, rtol=0)
    torch.testing.assert_close(shares(LOGITS, top_p=1.0), expected, atol=0.005, rtol=0)


def test_top_k_keeps_so_many_where_several_are_equal():
    assert shares(torch.zeros(5), top_k=2)[2:].sum() == 0


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_what_is_forbidden_is_never_drawn(seed, num_samples):
    forbidden = torch.rand(50, 20, generator=generator(seed)) < 0.5
    forbidden[:, :8] = False
    logits = torch.randn(50, 20, generator=generator(seed)).masked_fill(forbidden, -torch.inf)
    drawn = ts.sample_logits(logits, num_samples=num_samples, generator=generator(seed))
    assert not forbidden.gather(1, drawn).any()
    assert all(len(set(row)) == num_samples for row in drawn.tolist())


def test_temperature_0_takes_the_first_of_the_largest_and_a_row_may_have_its_own():
    logits = torch.tensor([[1.0, 5.0, 5.0], [3.0, 0.0, 1.0]])
    assert ts.sample_logits(logits, temperature=0)[:, 0].tolist() == [1, 0]
    rows = torch.tensor([0.0, 100.0])
    drawn = torch.stack(
        [ts.sample_logits(logits, temperature=rows, generator=generator(s))[:, 0] for s in range(50)]
    )
    assert set(drawn[:, 0].tolist()) == {1}
    assert set(drawn[:, 1].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_type_and_leading_shape_is_drawn_from(dtype):
    logits = torch.randn(2, 3, 5).to(dtype)
    drawn = ts.sample_logits(logits, num_samples=4, generator=generator())
    assert drawn.shape == (2, 3, 4)
    assert drawn.dtype == torch.int64
    assert ts.sample_logits(logits[0, 0]).shape == (1,)


def test_a_small_temperature_does_not_overflow():
    assert ts.sample_logits(torch.tensor([1e30, 2e30]), temperature=1e-10).tolist() == [1]


def test_the_same_generator_draws_the_same():
    logits = torch.randn(10, 6)
    first, second = (ts.sample_logits(logits, generator=generator(7)) for _ in range(2))
    assert torch.equal(first, second)


def test_a_class_whose_probability_rounds_to_0_can_still_be_the_last_one():
    logits = torch.tensor([0.0, -500.0, -torch.inf])
    assert sorted(ts.sample_logits(logits, num_samples=2).tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("logits", "options", "message"),
    [
        (torch.tensor([0.0, -torch.inf]), {"num_samples": 2}, "fewer than 2 classes"),
        (torch.tensor([-torch.inf, -torch.inf]), {}, "fewer than 1 classes"),
        (torch.tensor([0.0, 0.0]).log(), {}, "fewer than 1 classes"),
        (torch.tensor([0.5, -0.5]).log(), {}, "NaN"),
        (torch.zeros(3), {"num_samples": 2, "top_k": 1}, "top_k or top_p left them out"),
        (torch.tensor([0.0, float("nan")]), {}, "NaN"),
        (torch.tensor([0.0, float("inf")]), {}, r"\+inf"),
        (torch.tensor([1, 2]), {}, "int64"),
        (torch.zeros(2, 0), {}, r"shape \(2, 0\)"),
        (torch.zeros(2, 3), {"temperature": torch.ones(3)}, "one for each row"),
        (torch.zeros(3), {"temperature": -1.0}, "not negative"),
    ],
)
def test_rows_that_can_not_be_drawn_from_are_refused(logits, options, message):
    with pytest.raises(BatchError, match=message):
        ts.sample_logits(logits, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k=0"),
        ({"top_p": 0.0}, "top_p=0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"num_samples": 0}, "num_samples=0"),
        ({"num_samples": 4}, "replacement=True"),
    ],
)
def test_options_that_can_not_work_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        ts.sample_logits(torch.zeros(3), **options)


def test_more_draws_than_classes_with_replacement():
    drawn = ts.sample_logits(torch.tensor([0.0, -torch.inf]), num_samples=5, replacement=True)
    assert drawn.tolist() == [0] * 5


def test_draws_in_a_run_follow_its_seed(tmp_path):
    def drawn(name, seed):
        with ts.Run(tmp_path / name, seed=seed, progress=False) as run:
            source = run.data(torch.zeros(4, 6), batch_size=2)
            return [ts.sample_logits(b).tolist() for _ in run.epochs(2) for b in run.batches(source)]

    assert drawn("a", 1) == drawn("b", 1) != drawn("c", 2)


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        (LOGITS.softmax(0), True),
        (LOGITS.repeat(3, 1).half().softmax(-1), True),
        (torch.tensor([[1.0, 0.0], [0.5, 0.5]]), True),
        (torch.full((2, 5), 0.2), True),
        (torch.ones(4) / 4, True),
        (LOGITS, False),
        (LOGITS.log_softmax(0), False),
        (LOGITS.sigmoid(), False),
        (torch.zeros(2, 3), False),
        (torch.tensor([[0.5, 0.5], [2.0, 1.0]]), False),
        (torch.tensor([2.0, -1.0]), False),
        (torch.ones(3, 1), False),
    ],
)
def test_probabilities_are_told(given, is_told):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ts.sample_logits(given)
    assert [str(each.message).partition(",")[0] for each in caught] == [
        "ts.sample_logits was given rows that add up to 1"
    ] * is_told
