# SPDX-License-Identifier: Apache-2.0
"""Momentum for accumulated batches, and exact running statistics."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import truestep as ts

# ------------------------------------------------------------------ momentum


@given(momentum=st.floats(0, 1), parts=st.integers(1, 64))
@settings(deadline=None)
def test_micro_batches_together_forget_as_much_as_one_batch(momentum, parts):
    norm = nn.BatchNorm1d(2, momentum=momentum)
    change = ts.nn.batch_norm_momentum(norm, parts)
    assert (1 - norm.momentum) ** parts == pytest.approx(1 - momentum, abs=1e-12)
    assert change.old == {"": momentum}
    change.restore()
    assert norm.momentum == momentum


@given(sizes=st.lists(st.integers(2, 5), min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_the_running_mean_after_micro_batches_is_the_decayed_sum_it_is_said_to_be(sizes, seed):
    torch.manual_seed(seed)
    norm = nn.BatchNorm1d(3).double()
    parts = [torch.randn(size, 3, dtype=torch.float64) + 2 for size in sizes]
    ts.nn.batch_norm_momentum(norm, len(parts))
    pace = 1 - 0.9 ** (1 / len(parts))
    expected = sum(
        pace * (1 - pace) ** (len(parts) - 1 - index) * part.mean(0) for index, part in enumerate(parts)
    )
    for part in parts:
        norm(part)
    torch.testing.assert_close(norm.running_mean, expected)


def test_a_with_block_puts_momenta_back_and_none_stays_none():
    net = nn.Sequential(
        nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None), nn.InstanceNorm1d(2, track_running_stats=True)
    )
    with ts.nn.batch_norm_momentum(net, 4) as change:
        assert net[0].momentum == net[2].momentum == pytest.approx(1 - 0.9**0.25)
    assert change.cumulative == ("1",)
    assert change.to_dict()["old"] == {"0": 0.1, "2": 0.1}
    assert "an average over all forwards" in str(change)
    assert [layer.momentum for layer in net] == [0.1, None, 0.1]


def test_momenta_that_make_no_sense_are_refused_and_nothing_changed():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=1.5))
    with pytest.raises(ts.OptionError, match="outside 0 to 1"):
        ts.nn.batch_norm_momentum(net, 2)
    assert net[0].momentum == 0.1
    for wrong in (0, -1, 2.0, True, "4"):
        with pytest.raises(ts.OptionError, match="num_micro_batches="):
            ts.nn.batch_norm_momentum(net[0], wrong)
    with pytest.raises(ts.OptionError, match="no layer with running statistics"):
        ts.nn.batch_norm_momentum(
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)), 2
        )


# ------------------------------------------------------------------ exact statistics


def network(dtype=torch.float64):
    torch.manual_seed(1)
    first = (nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5), nn.Conv1d(3, 4, 2))
    rest = (nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(12, 2), nn.BatchNorm1d(2, affine=False))
    return nn.Sequential(*first, *rest).to(dtype)


def inputs_of_norms(net, data):
    """Return what each batch norm gets when all data go through the network at once in evaluation mode."""
    seen = {}
    layers = [module for module in net.modules() if isinstance(module, nn.BatchNorm1d)]
    handles = [
        layer.register_forward_pre_hook(lambda layer, inputs: seen.__setitem__(layer, inputs[0]))
        for layer in layers
    ]
    with torch.no_grad():
        net.eval()(data)
    for handle in handles:
        handle.remove()
    return {layer: values.transpose(0, 1).flatten(1) for layer, values in seen.items()}


ragged = st.lists(st.integers(1, 6), min_size=2, max_size=6)


@given(
    sizes=ragged,
    seed=st.integers(0, 99),
    unbiased=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    shift=st.sampled_from([0.0, 1000.0]),
)
@settings(deadline=None, max_examples=25)
def test_layer_by_layer_statistics_are_those_of_the_whole_data_in_evaluation(
    sizes, seed, unbiased, dtype, shift
):
    net = network(dtype)
    torch.manual_seed(seed)
    data = torch.randn(sum(sizes), 2, 5, dtype=dtype) * 3 + shift
    done = ts.nn.exact_batch_norm(net, data.split(sizes), unbiased=unbiased)
    assert [each.name for each in done.layers] == ["1", "5", "8"]
    assert [each.num_values for each in done.layers] == [4 * len(data), 3 * len(data), len(data)]
    # a shift is cancelled by the first norm and leaves the rounding of its size, which differs with the sizes of batches
    cancelled = torch.finfo(dtype).eps * float(data.abs().max() / data.std())
    tolerance = (1e-12 if dtype == torch.float64 else 2e-5) + 2 * cancelled
    for layer, values in inputs_of_norms(net, data).items():
        values = values.double()
        exact = {"running_mean": values.mean(1), "running_var": values.var(1, correction=int(unbiased))}
        for name, value in exact.items():
            size = float(values.abs().max()) ** (2 if name == "running_var" else 1)
            torch.testing.assert_close(
                getattr(layer, name).double(), value, rtol=tolerance, atol=tolerance * size
            )


@given(sizes=ragged, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_layer_by_layer_statistics_do_not_depend_on_the_batches(sizes, seed):
    torch.manual_seed(seed)
    data = torch.randn(sum(sizes), 2, 5, dtype=torch.float64)
    one, other = network(), network()
    ts.nn.exact_batch_norm(one, data.split(sizes))
    ts.nn.exact_batch_norm(other, [data])
    for key, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[key], rtol=1e-11, atol=1e-12)


@given(sizes=st.lists(st.integers(2, 6), min_size=2, max_size=6), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_one_pass_is_exact_in_the_first_layer_and_in_all_of_them_for_one_batch(sizes, seed):
    torch.manual_seed(seed)
    data = torch.randn(sum(sizes), 2, 5, dtype=torch.float64)
    one, whole, trained = network(), network(), network()
    ts.nn.exact_batch_norm(one, data.split(sizes), method="one_pass")
    ts.nn.exact_batch_norm(whole, [data], method="one_pass")
    torch.testing.assert_close(one[1].running_mean, whole[1].running_mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one[1].running_var, whole[1].running_var, rtol=1e-12, atol=1e-12)
    for layer in (trained[1], trained[5], trained[8]):
        layer.momentum = 1.0  # torch then keeps the batch's statistics alone
    trained.train()
    trained[3].eval()
    trained(data)
    for index in (1, 5, 8):
        torch.testing.assert_close(whole[index].running_mean, trained[index].running_mean)
        torch.testing.assert_close(whole[index].running_var, trained[index].running_var)


@pytest.mark.parametrize("method", ["layer_by_layer", "one_pass"])
@pytest.mark.parametrize("training", [True, False])
def test_everything_else_is_left_as_it_was(method, training):
    net = network().train(training)
    net[1].eval()
    net[4].requires_grad_(False)
    net[7].weight.grad = torch.ones_like(net[7].weight)
    net[5].num_batches_tracked.fill_(7)
    before, modes = copy.deepcopy(net), [module.training for module in net.modules()]
    loader = DataLoader(
        TensorDataset(torch.randn(12, 2, 5, dtype=torch.float64), torch.zeros(12)), batch_size=5, shuffle=True
    )
    state = torch.get_rng_state()
    ts.nn.exact_batch_norm(net, loader, method=method)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in net.modules()] == modes
    assert torch.equal(net[7].weight.grad, torch.ones_like(net[7].weight))
    assert not any(module._forward_pre_hooks for module in net.modules())
    changed = [
        key for key, value in net.state_dict().items() if not torch.equal(value, before.state_dict()[key])
    ]
    assert changed == [f"{index}.running_{what}" for index in (1, 5, 8) for what in ("mean", "var")]
    assert not net[1].running_mean.requires_grad


class Odd(nn.Module):
    """Two branches by turns; one norm is never called."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third, self.never = (nn.BatchNorm1d(2) for _ in range(4))

    def forward(self, values):
        values = self.first(values)
        return self.third(values if len(values) == 3 else self.second(values))


def test_branches_are_followed_and_what_is_never_called_is_left():
    data = [torch.randn(3, 2), torch.randn(4, 2)]
    done = ts.nn.exact_batch_norm(Odd(), data)
    assert [each.name for each in done.layers] == ["first", "second", "third"]
    assert [each.num_values for each in done.layers] == [7, 4, 7]
    assert done.left == ("never",)
    assert "never called" in str(done)
    assert done.to_dict()["layers"][0]["num_values"] == 7


def test_other_batches_are_run_by_the_users_function():
    net = network(torch.float32)
    batches = [{"image": torch.randn(4, 2, 5)} for _ in range(2)]
    with pytest.raises(ts.OptionError, match=r"A batch is a dict"):
        ts.nn.exact_batch_norm(net, batches)
    done = ts.nn.exact_batch_norm(net, batches, forward=lambda batch: net(batch["image"]))
    assert done.layers[0].num_values == 32


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, values):
        return self.norm(self.norm(values))


def test_bad_input_is_refused_and_the_statistics_stay():
    net = network(torch.float32)
    before = copy.deepcopy(net.state_dict())
    data = [torch.randn(4, 2, 5), torch.randn(1, 2, 5)]
    broken = [data[0], torch.full((2, 2, 5), math.nan)]
    cases = [
        ("no batches", lambda: ts.nn.exact_batch_norm(net, [])),
        ("an iterator can be used once", lambda: ts.nn.exact_batch_norm(net, iter(data))),
        ("NaN or infinite", lambda: ts.nn.exact_batch_norm(net, broken)),
        ("NaN or infinite", lambda: ts.nn.exact_batch_norm(net, broken, method="one_pass")),
        ("one value per channel", lambda: ts.nn.exact_batch_norm(net, data, method="one_pass")),
        ("got 1 value per channel", lambda: ts.nn.exact_batch_norm(net, data[1:])),
        ("method='fast'", lambda: ts.nn.exact_batch_norm(net, data, method="fast")),
        ("no batch norm", lambda: ts.nn.exact_batch_norm(nn.Linear(2, 2), data)),
        ("'norm' is used several times", lambda: ts.nn.exact_batch_norm(Twice(), [torch.randn(4, 2)])),
        (r"The batches are a Tensor.*\[inputs\]", lambda: ts.nn.exact_batch_norm(net, data[0])),
        ("The batches are a NoneType", lambda: ts.nn.exact_batch_norm(net, None)),
        ("forward='net' is no function", lambda: ts.nn.exact_batch_norm(net, data, forward="net")),
        ("unbiased='no'", lambda: ts.nn.exact_batch_norm(net, data, unbiased="no")),
        ("on the device meta", lambda: ts.nn.exact_batch_norm(nn.BatchNorm1d(2, device="meta"), data)),
        ("no shape yet", lambda: ts.nn.exact_batch_norm(nn.LazyBatchNorm1d(), data)),
    ]
    for message, call in cases:
        with pytest.raises(ts.OptionError, match=message):
            call()
        assert not any(module._forward_pre_hooks for module in net.modules())
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    ts.nn.exact_batch_norm(Twice(), [torch.randn(4, 2)], method="one_pass")
    ts.nn.exact_batch_norm(net, iter(data[:1]), method="one_pass")
