# SPDX-License-Identifier: Apache-2.0
"""The DCGAN tutorial's loop and a WGAN with a penalty, each beside the loop by hand that is given the same draws."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

STEPS, NOISE = 20, 8
UNIT = 2.0**-53


def generator(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, 8, 4, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def discriminator(seed=2):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 1, 4, bias=False),
        nn.Flatten(0),
    )


def adam(parameters):
    return torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999), fused=True)


def drawn(number=STEPS, size=6):
    draw = torch.Generator().manual_seed(0)
    return [
        (torch.rand(size, 1, 8, 8, generator=draw) * 2 - 1, torch.randn(size, NOISE, 1, 1, generator=draw))
        for _ in range(number)
    ]


def by_hand():
    """PyTorch's DCGAN tutorial: one fake batch, made before the discriminator's update, serves both updates."""
    g, d = generator(), discriminator()
    g_optimizer, d_optimizer = adam(g.parameters()), adam(d.parameters())
    for real, noise in drawn():
        d.zero_grad()
        F.binary_cross_entropy_with_logits(d(real), torch.ones(len(real))).backward()
        fake = g(noise)
        F.binary_cross_entropy_with_logits(d(fake.detach()), torch.zeros(len(real))).backward()
        d_optimizer.step()
        g.zero_grad()
        F.binary_cross_entropy_with_logits(d(fake), torch.ones(len(real))).backward()
        g_optimizer.step()
    return (g, g_optimizer), (d, d_optimizer)


def test_the_dcgan_tutorials_loop_ends_with_the_same_bits(make_learner, make_context):
    context = make_context()
    g = make_learner(generator(), adam, context, name="generator")
    d = make_learner(discriminator(), adam, context, name="discriminator")

    def realness(images, label):
        """The tutorial's own: a scalar, whose mean multiplies in another order than that of the single losses."""
        return F.binary_cross_entropy_with_logits(d(images), torch.full((len(images),), label))

    for step, (real, noise) in enumerate(drawn()):
        context.advance(step)
        fake = g(noise)
        with d.accumulating(weight=1) as update:
            update.backward(realness(real, 1.0))
            update.backward(realness(fake.detach(), 0.0))
        g.update(lambda fake: realness(fake, 1.0), fake)

    for (module, optimizer), learner in zip(by_hand(), (g, d), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(module.parameters(), learner.parameters(), strict=True))
        for a, b in zip(optimizer.state.values(), learner.optimizers[0].state.values(), strict=True):
            assert all(torch.equal(a[name], b[name]) for name in a)
    (hand, _), (hand_d, _) = by_hand()
    assert torch.equal(
        hand[1].running_mean, g.module[1].running_mean
    )  # moved by the one forward that made the fakes
    # By Ownership the discriminator's statistics are those of its own updates: two forwards a step, not three.
    assert int(d.module[1].num_batches_tracked) == 2 * STEPS
    assert int(hand_d[1].num_batches_tracked) == 3 * STEPS


def test_the_discriminators_statistics_are_those_of_its_own_updates(make_learner, make_context):
    context = make_context()
    g = make_learner(generator(), adam, context, name="generator")
    d = make_learner(discriminator(), adam, context, name="discriminator")
    for step, (real, noise) in enumerate(drawn(3)):
        context.advance(step)
        fake = g(noise)
        d.update(lambda batch: F.softplus(-d(batch[0])) + F.softplus(d(batch[1].detach())), (real, fake))
        before = {name: buffer.clone() for name, buffer in d.module.named_buffers()}
        g.update(lambda fake: F.softplus(-d(fake)), fake)
        assert all(torch.equal(buffer, before[name]) for name, buffer in d.module.named_buffers())


@pytest.mark.parametrize("how", ["micro-batches in the batch", "micro-batches by name", "auto", "lbfgs"])
def test_a_reused_graph_is_refused_where_it_is_gone_through_again(
    make_learner, make_context, same, snapshot, how
):
    context = make_context()
    lbfgs = lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    g = make_learner(module, lbfgs if how == "lbfgs" else adam, context)
    d = make_learner(nn.Linear(2, 1), adam, context)
    fake = g(torch.randn(6, 3))
    before = snapshot(g), snapshot(d)
    words = r"a graph that was made before this update.*(micro-batches|several times|may have to evaluate it again)"
    loss, batch, size = lambda x: d(x).squeeze(1).square(), fake, {"auto": "auto", "lbfgs": None}.get(how, 4)
    if how == "micro-batches by name":
        loss, batch = lambda x: d(fake)[: len(x)].squeeze(1).square(), torch.ones(6, 1)
    with pytest.raises(ts.LossError, match=words):
        g.update(loss, batch, micro_batch=size)
    assert same(before, (snapshot(g), snapshot(d)))


def test_a_forward_outside_of_an_update_keeps_the_precision_around_it(make_learner):
    net = make_learner(nn.Linear(2, 3), precision="bf16-mixed")
    seen = []
    net.update(lambda x: seen.append(net(x).dtype) or net(x).float().sum(1), torch.ones(4, 2))
    assert seen == [torch.bfloat16]
    assert net(torch.ones(4, 2)).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert net(torch.ones(4, 2)).dtype == torch.bfloat16


def test_a_state_that_is_carried_with_its_graph_is_explained(make_learner):
    net = make_learner(nn.RNNCell(2, 3))
    carried = [torch.zeros(4, 3)]

    def loss(x):
        carried.append(net(x, carried[-1]))
        return carried[-1].square().sum(1)

    net.update(loss, torch.ones(4, 2))
    with pytest.raises(ts.LossError, match=r"carry the state as state\.detach\(\)"):
        net.update(loss, torch.ones(4, 2))


# ---------------------------------------------------------------- WGAN-GP, split


def critic_and_generator():
    torch.manual_seed(3)
    critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    return critic, nn.Sequential(nn.Linear(NOISE, 16), nn.Tanh(), nn.Linear(16, 2)).double()


def wasserstein(critic, made, real, mix):
    """Each example's loss of the critic as the paper writes it, with the penalty written out."""
    between = (mix * real + (1 - mix) * made.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return 10 * (slope.norm(dim=1) - 1).square() + (critic(made.detach()) - critic(real)).squeeze(1)


def gradients(losses, module):
    return torch.autograd.grad(losses.mean(), list(module.parameters()), retain_graph=True)


@pytest.mark.parametrize("micro_batch", [None, 1, 4, [3, 9, 1, 3]])
def test_a_wgan_with_a_penalty_keeps_the_split_law(make_learner, make_context, micro_batch):
    """Three updates of the critic and one of the generator a step; each gradient beside that of the loop by hand."""
    context = make_context(seed=9)
    critic_module, generator_module = critic_and_generator()
    options = {"context": context, "precision": "float64"}
    sgd = lambda p: torch.optim.SGD(p, lr=0.05)
    g = make_learner(generator_module, sgd, name="generator", **options)
    critic = make_learner(critic_module, sgd, name="critic", **options)
    noises, points = [], []

    def fake(n):
        noises.append(ts.randn(n, NOISE, dtype=torch.float64))
        return g(noises[-1])

    def watched(x):
        points.append(x.detach().clone())
        return critic(x)

    def critic_loss(real):
        made = fake(len(real))
        return 10 * ts.gradient_penalty(watched, real, made) + (critic(made) - critic(real)).squeeze(1)

    def generator_loss(real):
        return -critic(fake(len(real))).squeeze(1)

    draw = torch.Generator().manual_seed(1)
    num_parts = (
        1 if micro_batch is None else math.ceil(16 / micro_batch) if isinstance(micro_batch, int) else 4
    )
    for step in range(6):
        context.advance(step)
        real = torch.randn(16, 2, generator=draw, dtype=torch.float64)
        learner, loss = (critic, critic_loss) if step % 4 else (g, generator_loss)
        noises.clear()
        points.clear()
        started = {name: value.clone() for name, value in learner.module.state_dict().items()}
        learner.update(loss, real, micro_batch=micro_batch)
        now = {name: value.clone() for name, value in learner.module.state_dict().items()}
        learner.module.load_state_dict(started)
        noise = torch.cat(noises)
        made = generator_module(noise)
        if learner is critic:
            # The mix that was drawn, from the points themselves.
            difference = real - made.detach()
            mix = ((torch.cat(points) - made.detach()) * difference).sum(1, keepdim=True)
            losses = wasserstein(critic_module, made, real, mix / difference.square().sum(1, keepdim=True))
        else:
            losses = -critic_module(made).squeeze(1)
        for parameter, expected, each in zip(
            learner.parameters(),
            gradients(losses, learner.module),
            _shares(losses, learner.module),
            strict=True,
        ):
            # 4: the mix was read back with a rounding of its own
            bound = 4 * 16 * math.sqrt(num_parts) * UNIT * each.norm()
            assert (parameter.grad - expected).norm() <= bound
        learner.module.load_state_dict(now)


def _shares(losses, module):
    sums = [torch.zeros_like(p) for p in module.parameters()]
    losses = losses / len(losses)
    for loss in losses:
        for total, gradient in zip(
            sums, torch.autograd.grad(loss, list(module.parameters()), retain_graph=True), strict=True
        ):
            total += gradient.abs()
    return sums
