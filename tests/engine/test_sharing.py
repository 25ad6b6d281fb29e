# SPDX-License-Identifier: Apache-2.0
"""A frozen encoder in two learners: allowed, its buffers the first's, refused as soon as it would train."""

import pytest
import torch
from torch import nn

import truestep as ts

DATA = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).requires_grad_(False)


def two(make_learner, make_context, **options):
    context, shared = make_context(), encoder()
    adam = lambda p: torch.optim.AdamW(p, lr=0.1)
    first = make_learner(nn.Sequential(shared, nn.Linear(4, 1)), adam, context, name="first", **options)
    second = make_learner(nn.Sequential(shared, nn.Linear(4, 2)), adam, context, name="second", **options)
    return shared, first, second


def loss_of(learner):
    return lambda x: learner(x).square().sum(1)


@pytest.mark.parametrize("options", [{}, {"ema": ts.EMA()}, {"precision": "O2", "loss_scale": 64.0}])
def test_a_frozen_encoder_stays_and_its_statistics_move_with_the_first_learner_alone(
    make_learner, make_context, same, options
):
    shared, first, second = two(make_learner, make_context, **options)
    weights = [p.clone() for p in shared.parameters()]
    start = {name: buffer.clone() for name, buffer in shared.named_buffers()}
    heads = first.module[1].weight.clone(), second.module[1].weight.clone()
    second.update(loss_of(second), DATA)
    assert same(start, dict(shared.named_buffers()))
    first.update(loss_of(first), DATA)
    assert not same(start, dict(shared.named_buffers()))
    assert same(weights, list(shared.parameters()))
    assert not torch.equal(heads[0], first.module[1].weight)
    assert not torch.equal(heads[1], second.module[1].weight)


def test_each_head_ends_where_it_ends_with_an_encoder_of_its_own(make_learner, make_context, same):
    shared, first, second = two(make_learner, make_context)
    shared.eval()
    alone = make_learner(
        nn.Sequential(encoder().eval(), nn.Linear(4, 2)), lambda p: torch.optim.AdamW(p, lr=0.1)
    )
    alone.module[1].load_state_dict(second.module[1].state_dict())
    for _ in range(3):
        first.update(loss_of(first), DATA)
        second.update(loss_of(second), DATA)
        alone.update(loss_of(alone), DATA)
    assert same(dict(alone.module.state_dict()), dict(second.module.state_dict()))


def test_both_go_on_from_their_states(make_learner, make_context, same):
    shared, first, second = two(make_learner, make_context)
    first.update(loss_of(first), DATA)
    states = first.training_state(), second.training_state()
    kept = {name: buffer.clone() for name, buffer in shared.named_buffers()}
    other, third, fourth = two(make_learner, make_context)
    third.load_training_state(states[0])
    fourth.load_training_state(states[1])
    assert same(kept, dict(other.named_buffers()))


@pytest.mark.parametrize("updated", ["first", "second", "both"])
def test_unfreezing_it_is_refused_by_name(make_learner, make_context, updated):
    shared, first, second = two(make_learner, make_context)
    first.update(loss_of(first), DATA)
    second.update(loss_of(second), DATA)
    shared.requires_grad_(True)
    before = shared[0].weight.clone()
    joint = lambda x: first(x).sum(1) + second(x).sum(1)
    updates = {
        "first": lambda: first.update(loss_of(first), DATA),
        "second": lambda: second.update(loss_of(second), DATA),
        "both": lambda: ts.update([first, second], joint, DATA),
    }
    message = r"4 parameters \(0\.0\.weight, .*'first' and in 'second'.*unfrozen"
    with pytest.raises(ts.OptionError, match=message):
        updates[updated]()
    assert torch.equal(before, shared[0].weight)
    shared.requires_grad_(False)
    first.update(loss_of(first), DATA)


def test_one_trainable_parameter_is_refused_when_the_second_is_made(make_learner, make_context):
    context, shared = make_context(), encoder()
    shared[1].bias.requires_grad_(True)
    make_learner(nn.Sequential(shared, nn.Linear(4, 1)), context=context, name="first")
    with pytest.raises(ts.OptionError, match=r"1 parameters \(0\.1\.bias\) belong to the learner 'first'"):
        make_learner(nn.Sequential(shared, nn.Linear(4, 2)), context=context, name="second")


def test_one_tensor_has_one_type(make_learner, make_context):
    context, shared = make_context(), encoder()
    first = make_learner(nn.Sequential(shared, nn.Linear(4, 1)), context=context, name="first")
    with pytest.raises(ts.OptionError, match="one tensor has one type"):
        make_learner(nn.Sequential(shared, nn.Linear(4, 2)), context=context, name="second", precision="bf16")
    assert first.module[0][0].weight.dtype == torch.float32


def test_a_layer_of_buffers_alone_moves_with_the_first(make_learner, make_context):
    context, norm = make_context(), nn.BatchNorm1d(3, affine=False)
    first = make_learner(nn.Sequential(norm, nn.Linear(3, 1)), context=context)
    second = make_learner(nn.Sequential(norm, nn.Linear(3, 1)), context=context)
    second.update(loss_of(second), DATA)
    assert int(norm.num_batches_tracked) == 0
    first.update(loss_of(first), DATA)
    assert int(norm.num_batches_tracked) == 1
