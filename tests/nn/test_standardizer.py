# SPDX-License-Identifier: Apache-2.0
"""A Standardizer against exact fractions, scikit-learn, and itself in another order."""

import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import warm

import truestep as ts
from truestep.nn import Standardizer

SHORT = settings(max_examples=40, deadline=None)
TIGHT = {"rtol": 1e-12, "atol": 0.0}
BY_A_PEER = pytest.mark.xdist_group("scikit-learn")


@pytest.fixture(scope="module")
def standard_scaler():
    """Return scikit-learn's, imported here: with SciPy and pandas it is 1,000 modules that the forks of all tests would copy."""
    from sklearn.preprocessing import StandardScaler

    return StandardScaler


def exact(values, weights=None):
    """Return mean and variance of each column, by fractions, as float64."""
    columns = []
    for column in np.asarray(values, dtype=np.float64).T:
        numbers = [Fraction(float(value)) for value in column]
        shares = [
            Fraction(float(weight)) for weight in (np.ones(len(numbers)) if weights is None else weights)
        ]
        mean = sum(s * v for s, v in zip(shares, numbers, strict=True)) / sum(shares)
        variance = sum(s * (v - mean) ** 2 for s, v in zip(shares, numbers, strict=True)) / sum(shares)
        columns.append((float(mean), float(variance)))
    return np.array(columns).T


def pieces(values, cuts, seed):
    """Cut values at `cuts` and shuffle the parts."""
    parts = np.split(values, sorted(cut % (len(values) + 1) for cut in cuts))
    random.Random(seed).shuffle(parts)
    return parts


def merged_as_a_random_tree(parts, seed):
    draw = random.Random(seed)
    while len(parts) > 1:
        first = parts.pop(draw.randrange(len(parts)))
        second = parts.pop(draw.randrange(len(parts)))
        parts.append(first + second)
    return parts[0]


data = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "rows": st.integers(2, 60),
        "cuts": st.lists(st.integers(0, 60), max_size=8),
        "offset": st.sampled_from([0.0, -3.0, 1e3, 1e8, -1e8, 1e12]),
    }
)


def drawn(case):
    return np.random.default_rng(case["seed"]).normal(size=(case["rows"], 3)) + case["offset"]


@SHORT
@given(data)
def test_any_chunks_in_any_order_give_the_exact_mean_and_variance(case):
    values = drawn(case)
    mean, variance = exact(values)
    scaler = Standardizer()
    for part in pieces(values, case["cuts"], case["seed"]):
        scaler.partial_fit(part)
    np.testing.assert_allclose(scaler.variance, variance, **TIGHT)
    np.testing.assert_allclose(scaler.mean, mean, rtol=1e-12, atol=1e-14)
    assert scaler.count.tolist() == [case["rows"]] * 3


@SHORT
@given(data)
def test_any_merge_tree_gives_the_exact_mean_and_variance(case):
    values = drawn(case)
    mean, variance = exact(values)
    parts = [Standardizer().partial_fit(part) for part in pieces(values, case["cuts"], case["seed"])]
    whole = merged_as_a_random_tree(parts, case["seed"])
    np.testing.assert_allclose(whole.variance, variance, **TIGHT)
    np.testing.assert_allclose(whole.mean, mean, rtol=1e-12, atol=1e-14)


@BY_A_PEER
@SHORT
@given(data, st.sampled_from(["float16", "float32", "float64", "int32", "int64", "uint8"]))
def test_moderate_means_agree_with_scikit_learn(standard_scaler, case, dtype):
    values = (np.random.default_rng(case["seed"]).uniform(0, 9, size=(case["rows"], 3))).astype(dtype)
    mine, theirs = Standardizer(), standard_scaler()
    for part in pieces(values, case["cuts"], case["seed"]):
        mine.partial_fit(part)
        if len(part):
            theirs.partial_fit(part.astype(np.float64))
    np.testing.assert_allclose(mine.mean, theirs.mean_, **TIGHT)
    np.testing.assert_allclose(mine.variance, theirs.var_, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(mine.scale, theirs.scale_, rtol=1e-12, atol=1e-15)
    wide = values.astype(np.float64)
    np.testing.assert_allclose(mine.transform(wide), theirs.transform(wide), rtol=1e-12, atol=1e-12)


@BY_A_PEER
def test_where_the_mean_is_a_hundred_million_spreads_scikit_learn_is_off_and_we_are_not(standard_scaler):
    values = np.random.default_rng(0).normal(size=(1000, 3)) + 1e8
    _, variance = exact(values)
    mine, theirs = Standardizer(), standard_scaler()
    for part in np.array_split(values, 37):
        mine.partial_fit(part)
        theirs.partial_fit(part)
    np.testing.assert_allclose(mine.variance, variance, rtol=1e-15)
    assert np.abs(theirs.var_ / variance - 1).max() > 1e-12


def test_the_snippet_of_the_notes_gives_a_negative_variance_where_we_are_exact():
    values = (1000 + 0.01 * torch.randn(4096, 1, generator=torch.Generator().manual_seed(0))).float()
    naive = (values * values).sum() / len(values) - (values.sum() / len(values)) ** 2
    _, variance = exact(values.numpy())
    assert abs(naive.item() / variance[0] - 1) > 1
    np.testing.assert_allclose(Standardizer().partial_fit(values).variance, variance, **TIGHT)


def test_a_long_stream_of_single_observations_stays_exact():
    values = np.random.default_rng(1).normal(size=(3000, 1)) + 1e6
    scaler = Standardizer()
    for row in values:
        scaler.partial_fit(row[None])
    np.testing.assert_allclose(scaler.variance, exact(values)[1], rtol=1e-15)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e30, 1 / 3])
def test_a_constant_feature_has_scale_one(constant):
    values = np.full((101, 2), constant)
    values[:, 1] = np.arange(101)
    scaler = sum(Standardizer().partial_fit(part) for part in np.array_split(values, 7))
    assert scaler.scale[0] == 1
    assert scaler.mean[0] == constant
    assert np.all(scaler.transform(values)[:, 0] == 0)


def test_a_feature_of_tiny_spread_is_not_taken_for_a_constant():
    values = 1.0 + np.finfo(np.float64).eps * np.arange(8.0)[:, None]
    _, variance = exact(values)
    np.testing.assert_allclose(Standardizer().partial_fit(values).scale, np.sqrt(variance), **TIGHT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_keep_their_type_and_come_back(dtype):
    values = (torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) * 3 + 5).to(dtype)
    scaler = Standardizer().partial_fit(values)
    there = scaler.transform(values)
    back = scaler.inverse_transform(there)
    assert there.dtype == back.dtype == dtype
    bound = 8 * torch.finfo(dtype).eps * values.abs().max().item()
    torch.testing.assert_close(back, values, rtol=0, atol=bound)
    assert there.double().mean(0).abs().max() < 4 * torch.finfo(dtype).eps


def test_integers_become_the_default_float_and_integer_arrays_float64():
    values = torch.arange(12).reshape(6, 2)
    scaler = Standardizer().partial_fit(values)
    assert scaler.transform(values).dtype == torch.float32
    assert scaler.transform(values.numpy()).dtype == np.float64


@SHORT
@given(st.integers(0, 2**32 - 1), st.permutations([0, 1, 2, 3]), st.integers(0, 3))
def test_any_axes_can_be_the_features(seed, order, num_axes):
    values = np.random.default_rng(seed).normal(size=(2, 3, 4, 5))
    axes = tuple(order[:num_axes])
    others = tuple(axis for axis in range(4) if axis not in axes)
    scaler = Standardizer(feature_axis=axes).partial_fit(values)
    expected = values.transpose(*axes, *others).reshape(*(values.shape[a] for a in axes), -1)
    np.testing.assert_allclose(scaler.mean, expected.mean(-1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(scaler.scale, expected.std(-1), rtol=1e-12)
    kept = scaler.transform(values)
    assert kept.shape == values.shape
    np.testing.assert_allclose(kept.mean(others), 0, atol=1e-14)
    np.testing.assert_allclose(scaler.inverse_transform(kept), values, rtol=1e-12, atol=1e-14)


def test_a_single_image_is_standardised_like_its_batch():
    images = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    scaler = Standardizer(feature_axis=-3).partial_fit(images)
    assert torch.equal(scaler.transform(images[2]), scaler.transform(images)[2])


def test_one_statistic_for_everything():
    values = torch.arange(6.0).reshape(2, 3)
    scaler = Standardizer(feature_axis=None).partial_fit(values)
    assert scaler.mean.item() == 2.5
    assert scaler.transform(values).mean().abs() < 1e-7


@SHORT
@given(data)
def test_weights_count_as_repetitions_and_zero_as_absence(case):
    values = drawn(case)
    weights = np.random.default_rng(case["seed"] + 1).integers(0, 4, size=len(values))
    weights[0] = 2
    values[weights == 0] = np.nan
    weighted = Standardizer().partial_fit(values, weights)
    repeated = Standardizer().partial_fit(np.repeat(values, weights, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(weighted.variance, repeated.variance, rtol=1e-12, atol=1e-15)
    assert torch.equal(weighted.count, repeated.count)


def test_fractional_weights_are_exact():
    values = np.random.default_rng(0).normal(size=(50, 2)) + 1e8
    weights = np.random.default_rng(1).uniform(size=50)
    scaler = Standardizer()
    for part, share in zip(np.array_split(values, 6), np.array_split(weights, 6), strict=True):
        scaler.partial_fit(part, share)
    mean, variance = exact(values, weights)
    np.testing.assert_allclose(scaler.variance, variance, **TIGHT)
    np.testing.assert_allclose(scaler.mean, mean, **TIGHT)


def test_weights_of_pixels_or_of_images():
    images = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    by_image = Standardizer(feature_axis=1).partial_fit(images, torch.tensor([1, 0, 1, 0]))
    by_pixel = Standardizer(feature_axis=1).partial_fit(
        images, torch.tensor([1, 0, 1, 0])[:, None, None].expand(4, 2, 2)
    )
    kept = Standardizer(feature_axis=1).partial_fit(images[::2])
    for scaler in (by_image, by_pixel):
        torch.testing.assert_close(scaler.mean, kept.mean, rtol=1e-14, atol=0)
        torch.testing.assert_close(scaler.variance, kept.variance, rtol=1e-14, atol=0)


@BY_A_PEER
def test_omitted_nan_agree_with_scikit_learn_and_stay_nan(standard_scaler):
    values = np.random.default_rng(0).normal(size=(60, 3))
    values[np.random.default_rng(1).uniform(size=values.shape) < 0.2] = np.nan
    mine, theirs = Standardizer(nan="omit"), standard_scaler()
    for part in np.array_split(values, 7):
        mine.partial_fit(part)
        theirs.partial_fit(part)
    np.testing.assert_allclose(mine.mean, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(mine.scale, theirs.scale_, rtol=1e-12)
    assert mine.count.tolist() == theirs.n_samples_seen_.tolist()
    assert np.array_equal(np.isnan(mine.transform(values)), np.isnan(values))


def test_a_feature_that_was_never_seen_is_nan():
    scaler = Standardizer(nan="omit").partial_fit(torch.tensor([[1.0, torch.nan], [3.0, torch.nan]]))
    assert scaler.mean[0] == 2
    assert scaler.mean[1].isnan()
    assert scaler.transform(torch.ones(1, 2))[0, 1].isnan()


def test_state_goes_through_torch_save_and_on():
    values = np.random.default_rng(0).normal(size=(40, 3)) + 1e8
    scaler = Standardizer().partial_fit(values[:20])
    again = Standardizer().load_state_dict(scaler.state_dict())
    assert torch.equal(again.partial_fit(values[20:]).variance, scaler.partial_fit(values[20:]).variance)
    empty = Standardizer().load_state_dict(Standardizer().state_dict())
    assert torch.equal(empty.partial_fit(values).mean, Standardizer().partial_fit(values).mean)


def test_a_loaded_state_is_a_copy():
    scaler = Standardizer().partial_fit(torch.rand(5, 2))
    state = scaler.state_dict()
    state["mean"].zero_()
    assert scaler.mean.abs().min() > 0


def test_the_state_lives_in_a_run_and_its_checkpoints(tmp_path):
    chunks = torch.arange(24.0).reshape(12, 2)

    def pass_over(epochs):
        scaler = Standardizer()
        with ts.Run(tmp_path / "run", progress=False) as run:
            run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
            data = run.data(chunks, batch_size=4)
            for _ in run.epochs(epochs):
                scaler.load_state_dict(run.state.get("scaler", scaler.state_dict()))
                for batch in run.batches(data):
                    run.state["scaler"] = scaler.partial_fit(batch).state_dict()
        return scaler

    pass_over(1)
    twice = pass_over(2)
    assert twice.count.tolist() == [24, 24]
    torch.testing.assert_close(twice.mean, chunks.double().mean(0))


RANK = """
import sys, numpy as np, torch, torch.distributed as dist
from truestep.nn import Standardizer
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=3)
values = np.random.default_rng(0).normal(size=(50, 3)) + 1e8
scaler = Standardizer()
for part in [[], [values[:4], values[4:31]], [values[31:]]][rank]:
    scaler.partial_fit(part)
torch.save(scaler.all_merge().state_dict(), f"{folder}/{rank}.pt")
dist.destroy_process_group()
"""


def test_ranks_merge_to_the_same_bits_also_where_one_saw_nothing(tmp_path):
    ranks = [warm.Process("-c", RANK, rank, tmp_path) for rank in range(3)]
    assert [rank.wait() for rank in ranks] == [0, 0, 0]
    states = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(3)]
    _, variance = exact(np.random.default_rng(0).normal(size=(50, 3)) + 1e8)
    for state in states:
        assert all(torch.equal(state[name], states[0][name]) for name in state)
        np.testing.assert_allclose(Standardizer().load_state_dict(state).variance, variance, **TIGHT)


def test_gradients_pass_through_transform_and_fitting_keeps_no_graph():
    values = torch.randn(8, 2, requires_grad=True)
    scaler = Standardizer().partial_fit(values)
    assert not scaler.mean.requires_grad
    scaler.transform(values).sum().backward()
    torch.testing.assert_close(values.grad.double(), (1 / scaler.scale).expand(8, 2), rtol=1e-6, atol=0)


def test_merging_changes_only_the_left_one():
    first, second = Standardizer().partial_fit(torch.rand(3, 2)), Standardizer().partial_fit(torch.rand(4, 2))
    whole = first + second
    assert (first.count[0], second.count[0], whole.count[0]) == (3, 4, 7)
    assert first.merge(second).count[0] == 7
    assert second.count[0] == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Standardizer(nan="drop"), "There are"),
        (lambda: Standardizer().transform(torch.ones(1, 2)), "has seen no data"),
        (lambda: Standardizer().partial_fit(torch.ones(4)), r"values\[:, None\]"),
        (lambda: Standardizer().partial_fit(torch.tensor([[1.0, torch.nan]])), r'nan="omit"'),
        (lambda: Standardizer(nan="omit").partial_fit(torch.tensor([[torch.inf]])), "infinite"),
        (
            lambda: Standardizer().partial_fit(np.array([[1e200], [2e200]])),
            "overflow",
        ),
        (lambda: Standardizer(feature_axis=3).partial_fit(torch.ones(2, 2)), "does not fit"),
        (lambda: Standardizer(feature_axis=(1, -1)).partial_fit(torch.ones(2, 2)), "twice"),
        (lambda: Standardizer().partial_fit(torch.ones(3, 2)).transform(torch.ones(3, 4)), "same features"),
        (lambda: Standardizer().partial_fit(torch.ones(3, 2), torch.ones(2)), "one weight for each"),
        (lambda: Standardizer().partial_fit(torch.ones(3, 2), -torch.ones(3)), "negative"),
        (lambda: Standardizer().load_state_dict({"mean": 0}), "is no state of a Standardizer"),
        (
            lambda: (
                Standardizer()
                .partial_fit(torch.ones(3, 2))
                .merge(Standardizer().partial_fit(torch.ones(3, 4)))
            ),
            "same features",
        ),
    ],
)
def test_bad_values_are_refused_with_the_way_out(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("axis", ["1", 1.0, True, (0, 0), ("a",)])
def test_an_axis_that_is_no_number_is_refused_when_it_is_given(axis):
    with pytest.raises(ts.OptionError, match="feature_axis="):
        Standardizer(feature_axis=axis)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ma.masked_array([[1.0, 2.0]], [[0, 1]]), r"masked array.*filled\(np\.nan\)"),
        (torch.eye(2).to_sparse(), "this one is sparse"),
        (torch.ones(2, 2, device="meta"), "this one is meta"),
    ],
)
def test_numbers_that_are_not_there_one_by_one_are_refused(values, message):
    with pytest.raises(TypeError, match=message):
        Standardizer().partial_fit(values)


def test_a_state_or_a_part_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="it is a NoneType"):
        Standardizer().load_state_dict(None)
    with pytest.raises(TypeError, match="merges with another one, got an int"):
        Standardizer().merge(3)


@pytest.mark.parametrize("values", [[[1.0, 2.0]], torch.ones(2, 2, dtype=torch.complex64), np.array([["a"]])])
def test_other_types_are_refused_by_name(values):
    with pytest.raises(TypeError, match="got a"):
        Standardizer().partial_fit(values)


def test_what_was_refused_was_not_taken_in():
    scaler = Standardizer().partial_fit(torch.tensor([[1.0], [3.0]]))
    before = scaler.state_dict()
    for wrong in (
        torch.tensor([[torch.nan]]),
        torch.tensor([[1e300]], dtype=torch.float64),
        torch.ones(1, 2),
    ):
        with pytest.raises(ValueError, match=r"NaN|overflow|same features"):
            scaler.partial_fit(wrong)
    assert all(torch.equal(before[name], scaler.state_dict()[name]) for name in before)
