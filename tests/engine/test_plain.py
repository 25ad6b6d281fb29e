# SPDX-License-Identifier: Apache-2.0
"""The Plain law: unsplit, the engine ends bit for bit where the loop ends that everybody writes by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=3e-3, fused=True),
    "AdamW-decay": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.1, betas=(0.8, 0.95), fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=3e-3, weight_decay=0.01, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
    "SGD-momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, fused=True),
    "SGD-nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, fused=True),
    "SGD-dampening": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, fused=True),
}


def new_module():
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.Conv1d(2, 6, 3),
            nn.BatchNorm1d(6),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(36, 16),
            nn.LayerNorm(16),
        ),
        nn.Linear(16, 4),
    )


def batches(size, number):
    draw = torch.Generator().manual_seed(size)
    return [
        (torch.randn(size, 2, 8, generator=draw), torch.randint(4, (size,), generator=draw))
        for _ in range(number)
    ]


def by_hand(make, size, number, max_norm, warmup):
    module = new_module()
    optimizer = make(module.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup)
    for images, labels in batches(size, number):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(images), labels, reduction="none").mean()
        loss.backward()
        if max_norm:
            nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        optimizer.step()
        schedule.step()
    return module, optimizer, loss.detach()


def with_the_engine(make_learner, make, size, number, max_norm, warmup):
    learner = make_learner(
        new_module(),
        make,
        clip=ts.ClipNorm(max_norm) if max_norm else None,
        schedule=lambda o: torch.optim.lr_scheduler.LambdaLR(o, warmup),
    )
    for batch in batches(size, number):
        update = learner.update(lambda b: F.cross_entropy(learner(b[0]), b[1], reduction="none"), batch)
    return learner.module, learner.optimizers[0], update.loss


FACTORIES = (
    ("AdamW", 32),
    ("AdamW", 33),
    ("AdamW", 100),
    ("SGD-nesterov", 33),
    ("SGD", 100),
    ("SGD-momentum", 32),
)


@pytest.mark.sliced(8)
@pytest.mark.parametrize("max_norm", [None, 0.5, 1e-5, 1e6])
@pytest.mark.parametrize("factory", FACTORIES)
def test_200_updates_end_where_the_hand_written_loop_ends(make_learner, same, factory, max_norm):
    name, size = factory
    warmup = lambda step: min(1.0, (step + 1) / 20)
    number = 200
    expected = by_hand(OPTIMIZERS[name], size, number, max_norm, warmup)
    got = with_the_engine(make_learner, OPTIMIZERS[name], size, number, max_norm, warmup)
    assert same(dict(expected[0].state_dict()), dict(got[0].state_dict()))
    assert same(expected[1].state_dict()["state"], got[1].state_dict()["state"])
    assert same(expected[2], got[2])


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_fused_optimizer_ends_where_it_ends_by_hand(make_learner, same, name):
    flat = lambda step: 1.0
    expected = by_hand(OPTIMIZERS[name], 17, 30, 0.5, flat)
    got = with_the_engine(make_learner, OPTIMIZERS[name], 17, 30, 0.5, flat)
    assert same(dict(expected[0].state_dict()), dict(got[0].state_dict()))
    assert same(expected[1].state_dict()["state"], got[1].state_dict()["state"])


def test_losses_of_any_shape_without_weights_are_plain_means_too(make_learner, same):
    torch.manual_seed(0)
    hand, module = nn.Linear(3, 7), nn.Linear(3, 7)
    module.load_state_dict(hand.state_dict())
    learner = make_learner(module)
    data = torch.randn(33, 3)
    hand(data).square().mean().backward()
    expected = {name: p - 0.1 * p.grad for name, p in hand.named_parameters()}
    learner.update(lambda x: ts.weighted(learner(x).square()), data)
    for name, parameter in module.named_parameters():
        assert torch.allclose(expected[name], parameter, rtol=0, atol=1e-9)
    assert same(hand.weight.grad, module.weight.grad)


@pytest.mark.parametrize("clip", [None, ts.ClipNorm(0.1), ts.ClipValue(0.01)])
def test_a_loss_that_is_a_view_of_a_parameter_does_not_spoil_the_next_update(make_learner, clip):
    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Parameter(torch.ones(4, 1))

        def forward(self):
            return self.codes.squeeze(1)

    learner = make_learner(Codes(), clip=clip)
    norms = [float(learner.update(lambda _: learner(), torch.zeros(4)).gradient_norm) for _ in range(4)]
    assert norms == [norms[0]] * 4


def test_the_callers_random_stream_is_put_back(make_learner):
    learner = make_learner(nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 1)))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    learner.update(
        lambda x: learner(x).squeeze(1), torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    )
    assert torch.equal(expected, torch.rand(3))


def test_each_update_of_a_step_draws_its_own_noise_and_a_repeated_step_the_same(make_learner, make_context):
    context = make_context(seed=3)
    learner = make_learner(nn.Linear(1, 1), context=context)

    def noise():
        seen = []
        loss = lambda x: (seen.append(torch.rand(())), learner(x).squeeze(1))[1]
        learner.update(loss, torch.ones(3, 1))
        learner.update(loss, torch.ones(3, 1), micro_batch=1)
        return [float(value) for value in seen]

    context.advance(5)
    first = noise()
    assert len(set(first)) == 4
    context.advance(6)
    assert not set(first) & set(noise())
    context.advance(5)
    assert first == noise()


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


SCORES = {  # ways to make the output of the last layer itself the loss of each example
    "squeezed": lambda scores: scores.squeeze(1),
    "a column": lambda scores: scores[:, 0],
    "flattened": lambda scores: scores.flatten(),
    "a view": lambda scores: scores.view(-1),
    "as rows": ts.weighted,
    "negative": lambda scores: -scores.squeeze(1),
    "squared": lambda scores: scores.squeeze(1).square(),
}


def score_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))


def check_scores(make_learner, name, size):
    score, net = SCORES[name], score_net()
    inputs = torch.randn(size, 3, generator=torch.Generator().manual_seed(size))
    learner = make_learner(score_net(), lambda p: torch.optim.SGD(p, lr=0.0))
    learner.update(lambda rows: score(learner(rows)), inputs)
    values = score(net(inputs))
    (values.values if name == "as rows" else values).mean().backward()
    for ours, theirs in zip(learner.parameters(), net.parameters(), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours.grad, theirs.grad), (name, size)


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", SCORES)
def test_a_loss_that_is_the_heads_output_has_the_bits_of_the_loop_by_hand(make_learner, name):
    """torch adds up the rows of an expanded gradient in another order: a critic's bias got other bits for half of all sizes."""
    for size in (*range(1, 129, 3), *range(2, 129, 7), 512):
        check_scores(make_learner, name, size)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", SCORES)
def test_the_same_holds_where_the_default_dtype_is_float64(make_learner, name):
    for size in (1, 2, 7, 30, 64, 127):
        check_scores(make_learner, name, size)


def test_a_loss_that_is_a_parameter_leaves_the_next_steps_alone(make_learner):
    """Such a parameter's gradient is the memory that the backward began with, and clipping writes to it."""
    table = nn.Embedding(6, 1)
    learner = make_learner(table, lambda p: torch.optim.SGD(p, lr=0.5), clip=ts.ClipValue(0.01))
    for _ in range(3):
        before = table.weight.detach().clone()
        learner.update(lambda _: table.weight.squeeze(1), torch.zeros(6))
        assert torch.equal(table.weight.grad, torch.full((6, 1), 0.01))
        assert torch.equal(table.weight, before - 0.5 * 0.01)
