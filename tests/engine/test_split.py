# SPDX-License-Identifier: Apache-2.0
"""The Split law: the gradient that reaches the optimizer is a function of the whole batch, however it is cut."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import truestep as ts
from truestep.engine.update import balanced_micro_batches

UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
TOKENS, WIDTH, VOCABULARY, CLASSES = 5, 6, 11, 3


class Everything(nn.Module):
    """Embedding, convolution, attention (with its key bias, whose true gradient is zero), layer norm."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x + self.convolution(x.transpose(1, 2)).transpose(1, 2).tanh()
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.norm(x))


def everything(dtype, seed):
    torch.manual_seed(seed)
    module = Everything()
    with torch.no_grad():
        module.attention.in_proj_bias.normal_()  # torch starts it at zero
    return module.to(dtype)


def batch_of(size, seed, kind):
    """Tokens, labels and the weights of every token: all one, one an example, or ragged masks; zeros among them."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (size, TOKENS), generator=draw)
    labels = torch.randint(CLASSES, (size, TOKENS), generator=draw)
    weights = {
        "none": torch.ones(size, TOKENS),
        "examples": torch.randint(0, 3, (size, 1), generator=draw).expand(size, TOKENS).clone() * 0.7,
        "tokens": torch.randint(0, 2, (size, TOKENS), generator=draw).float(),
    }[kind]
    if weights.sum() == 0:
        weights[0, 0] = 0.3
    return tokens, labels, weights


def token_losses(module, batch):
    tokens, labels, _ = batch
    return F.cross_entropy(module(tokens).transpose(1, 2), labels, reduction="none")


def true_gradients(module, batch):
    """The plain loop: each example's share of the mean on its own; return their sum and the sum of their tokens' sizes.

    What rounds is the sum over tokens, whose terms may cancel within an example.
    """
    total = batch[2].to(next(module.parameters()).dtype).sum()
    sums = [torch.zeros_like(p) for p in module.parameters()]
    sizes = [torch.zeros_like(p) for p in module.parameters()]
    for index in range(len(batch[0])):
        example = tuple(part[index : index + 1] for part in batch)
        losses = token_losses(module, example)
        for share in (losses * example[2].to(losses.dtype)).flatten() / total:
            gradients = torch.autograd.grad(share, list(module.parameters()), retain_graph=True)
            for held, size, gradient in zip(sums, sizes, gradients, strict=True):
                held += gradient
                size += gradient.abs()
    return sums, sizes


def plain_gradients(module, batch):
    """The plain loop again, unsplit and in the module's own type."""
    losses, weights = token_losses(module, batch), batch[2].to(next(module.parameters()).dtype)
    return torch.autograd.grad((losses * weights).sum() / weights.sum(), list(module.parameters()))


def loss_for(learner, kind):
    if kind == "none":
        return lambda batch: token_losses(learner, batch).mean(1)
    return lambda batch: ts.weighted(
        token_losses(learner, batch), batch[2].to(next(learner.parameters()).dtype)
    )


def gradients_of(learner, loss, batch, sizes):
    """The gradients that reach the optimizer."""
    seen = []
    handle = learner.optimizers[0].register_step_pre_hook(
        lambda optimizer, *_: seen.extend(p.grad.clone() for g in optimizer.param_groups for p in g["params"])
    )
    learner.update(loss, batch, micro_batch=sizes)
    handle.remove()
    return seen


@st.composite
def cuts(draw, largest=9):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=largest).filter(lambda s: sum(s) <= 12))
    number = draw(st.sampled_from([None, 1, 2, 3, 5]))
    return sum(sizes), (sizes if number is None else number)


@settings(deadline=None, max_examples=60)
@given(
    cut=cuts(),
    kind=st.sampled_from(["none", "examples", "tokens"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**31),
)
def test_gradients_do_not_depend_on_the_split(make_learner, cut, kind, dtype, seed):
    size, sizes = cut
    batch = batch_of(size, seed, kind)
    names = {torch.float32: "float32", torch.float64: "float64"}
    learner = make_learner(everything(dtype, seed), precision=names[dtype])
    _, shares = true_gradients(everything(torch.float64, seed), batch)
    num_parts = len(sizes) if isinstance(sizes, list) else math.ceil(size / sizes)
    for gradient, plain, share, (name, _) in zip(
        gradients_of(learner, loss_for(learner, kind), batch, sizes),
        plain_gradients(everything(dtype, seed), batch),
        shares,
        learner.named_parameters(),
        strict=True,
    ):
        bound = 16 * math.sqrt(num_parts) * UNIT[dtype] * share.norm()
        assert (gradient - plain).norm() <= bound, name


@settings(deadline=None, max_examples=20)
@given(
    cut=cuts(),
    kind=st.sampled_from(["none", "examples", "tokens"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**31),
)
def test_a_split_gradient_is_as_near_the_true_one_as_the_unsplit_one(make_learner, cut, kind, dtype, seed):
    """Against float64, an example at a time. The unsplit loop's own error, from cancelling within an example, is torch's."""
    size, sizes = cut
    batch = batch_of(size, seed, kind)
    learner = make_learner(everything(dtype, seed), precision=str(dtype).removeprefix("torch."))
    reference, shares = true_gradients(everything(torch.float64, seed), batch)
    num_parts = len(sizes) if isinstance(sizes, list) else math.ceil(size / sizes)
    for gradient, plain, true, share in zip(
        gradients_of(learner, loss_for(learner, kind), batch, sizes),
        plain_gradients(everything(dtype, seed), batch),
        reference,
        shares,
        strict=True,
    ):
        bound = 16 * math.sqrt(num_parts) * UNIT[dtype] * share.norm()
        assert (gradient.double() - true).norm() <= max(bound, 4 * (plain.double() - true).norm())


@settings(deadline=None, max_examples=20)
@given(cut=cuts(), kind=st.sampled_from(["none", "tokens"]), max_norm=st.sampled_from([1e-3, 0.05, 100.0]))
def test_the_clipped_gradient_does_not_depend_on_the_split(make_learner, cut, kind, max_norm):
    size, sizes = cut
    batch = batch_of(size, size, kind)
    learner = make_learner(everything(torch.float64, 1), precision="float64", clip=ts.ClipNorm(max_norm))
    reference, shares = true_gradients(everything(torch.float64, 1), batch)
    norm = torch.stack([gradient.norm() for gradient in reference]).norm()
    factor = min(1.0, float(max_norm / (norm + 1e-6)))
    for gradient, true, share in zip(
        gradients_of(learner, loss_for(learner, kind), batch, sizes), reference, shares, strict=True
    ):
        bound = 16 * math.sqrt(size) * UNIT[torch.float64] * share.norm() * factor
        # the factor itself has an error of some units, relative to the gradient
        assert (gradient - factor * true).norm() <= bound + 64 * UNIT[torch.float64] * factor * true.norm()


def reference_training(batches, kind, max_norm):
    """50 steps of SGD with momentum in float64, written out."""
    module = everything(torch.float64, 7)
    buffers = [torch.zeros_like(p) for p in module.parameters()]
    for batch in batches:
        losses, weights = token_losses(module, batch), batch[2].double()
        gradients = torch.autograd.grad((losses * weights).sum() / weights.sum(), list(module.parameters()))
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        factor = min(1.0, float(max_norm / (norm + 1e-6)))
        with torch.no_grad():
            for parameter, buffer, gradient in zip(module.parameters(), buffers, gradients, strict=True):
                buffer.mul_(0.9).add_(gradient * factor)
                parameter -= 0.05 * buffer
    return module


@pytest.mark.sliced(6)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["none", "examples", "tokens"])
def test_parameters_after_50_steps_lie_as_near_the_reference_as_unsplit_ones(make_learner, kind, precision):
    dtype = getattr(torch, precision)
    batches = [
        batch_of(12 if step % 5 else 7, step, kind) for step in range(50)
    ]  # a short batch now and then
    reference = torch.cat(
        [p.detach().reshape(-1) for p in reference_training(batches, kind, 0.5).parameters()]
    )

    def distance(micro_batch):
        learner = make_learner(
            everything(torch.float64, 7),
            lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
            precision=precision,
            clip=ts.ClipNorm(0.5),
        )
        loss = loss_for(learner, kind)
        for batch in batches:
            learner.update(loss, batch, micro_batch=micro_batch)
        parameters = torch.cat([p.detach().reshape(-1).double() for p in learner.parameters()])
        return float((parameters - reference).norm()), float(reference.norm())

    unsplit, size = distance(None)
    assert unsplit < 1e4 * UNIT[dtype] * size
    for micro_batch in (1, 5, 8):
        assert distance(micro_batch)[0] <= 4 * max(unsplit, UNIT[dtype] * size)


def test_a_mean_with_its_weight_may_be_split_too(make_learner):
    batch = batch_of(10, 3, "tokens")
    learner = make_learner(everything(torch.float64, 3), precision="float64")

    def loss(part):
        losses, weights = token_losses(learner, part), part[2].double()
        return ts.weighted((losses * weights).sum() / weights.sum().clamp(min=1), weights.sum())

    reference, shares = true_gradients(everything(torch.float64, 3), batch)
    for gradient, true, share in zip(gradients_of(learner, loss, batch, 3), reference, shares, strict=True):
        assert (gradient - true).norm() <= 32 * UNIT[torch.float64] * share.norm()


@pytest.mark.parametrize("forwards", [1, 2])
def test_spectral_norm_makes_one_iteration_a_forward_however_the_batch_is_split(make_learner, forwards):
    def train(micro_batch, in_block=False):
        torch.manual_seed(0)
        module = nn.Sequential(
            spectral_norm(nn.Linear(4, 6)), nn.Tanh(), spectral_norm(nn.Linear(6, 1))
        ).double()
        learner = make_learner(module, precision="float64")
        data = torch.randn(11, 4, dtype=torch.float64)
        loss = lambda x: sum(learner(x * k).squeeze(1) for k in range(1, 1 + forwards))
        for _ in range(5):
            if not in_block:
                learner.update(loss, data, micro_batch=micro_batch)
                continue
            with learner.accumulating() as update:
                for part in data.split(micro_batch):
                    update.backward(loss(part))
        return module.state_dict()

    whole = train(None)
    for sizes in (1, 4, [3, 1, 2, 5]):
        for in_block in (False, True):
            for name, tensor in train(sizes, in_block).items():
                assert torch.allclose(tensor, whole[name], rtol=1e-12, atol=1e-14), name


def test_batch_normalisation_warns_by_layer_name_once(make_learner):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    learner = make_learner(module)
    loss = lambda x: learner(x).squeeze(1)
    with pytest.warns(
        UserWarning, match=r"Batch normalisation \(1\) takes its statistics from each micro-batch"
    ):
        learner.update(loss, torch.randn(8, 3), micro_batch=4)
    learner.update(loss, torch.randn(8, 3), micro_batch=4)
    other = make_learner(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))
    other.module[0].eval()
    other.update(lambda x: other(x).squeeze(1), torch.randn(8, 3), micro_batch=4)


class Centred(nn.Module):
    """A layer that keeps a running centre, and a table that never moves."""

    def __init__(self):
        super().__init__()
        self.inner = spectral_norm(nn.Linear(12, 1))
        self.register_buffer("centre", torch.zeros(1))
        self.register_buffer("table", torch.ones(1))

    def forward(self, rows):
        values = self.inner(rows)
        if self.training:
            self.centre.lerp_(values.detach().mean(0), 0.1)
        return values * self.table - self.centre


def instance_normed():
    norm = nn.InstanceNorm1d(3, track_running_stats=True)
    return nn.Sequential(nn.Unflatten(1, (3, 4)), norm, nn.Flatten(), nn.Linear(12, 1))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: nn.Sequential(Centred()), r"The buffers 0\.centre move whenever"),
        (
            instance_normed,
            r"The buffers 1\.running_mean, 1\.running_var, 1\.num_batches_tracked move whenever",
        ),
    ],
)
def test_buffers_that_each_part_moves_are_named_once(make_learner, make, named):
    learner = make_learner(make())
    loss = lambda x: learner(x).squeeze(1)
    learner.update(loss, torch.randn(8, 12))
    with pytest.warns(UserWarning, match=named) as told:
        learner.update(loss, torch.randn(8, 12), micro_batch=4)
    assert len(told) == 1
    learner.update(loss, torch.randn(8, 12), micro_batch=4)
    still = make_learner(make().eval())
    still.update(lambda x: still(x).squeeze(1), torch.randn(8, 12), micro_batch=4)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_half_precision_weights_accumulate_in_float32(make_learner, precision, dtype):
    """512 micro-batches: a sum in bfloat16 loses what is below a 256th of it."""
    torch.manual_seed(0)
    scale = {"loss_scale": 1.0} if precision == "fp16" else {}
    learner = make_learner(
        nn.Linear(8, 4), lambda p: torch.optim.SGD(p, lr=1e-3), precision=precision, **scale
    )
    data = torch.randn(512, 8).to(dtype).float()
    weight = learner.weight.detach().double().requires_grad_()
    bias = learner.bias.detach().double().requires_grad_()
    F.linear(data.double(), weight, bias).square().sum(1).mean().backward()
    loss = lambda x: learner(x).square().sum(1)
    seen = gradients_of(learner, loss, data, 1)
    for gradient, true in zip(seen, (weight.grad, bias.grad), strict=True):
        error = (gradient.double() - true).norm() / true.norm()
        assert error < 1.5 * torch.finfo(dtype).eps


def test_metrics_and_loss_are_means_over_the_whole_batch(make_learner):
    learner = make_learner(nn.Linear(2, 1), precision="float64")
    data = torch.arange(14.0, dtype=torch.float64).reshape(7, 2)
    weights = torch.tensor([0, 1, 2, 0, 3, 0, 0.5], dtype=torch.float64)

    def loss(batch):
        x, w = batch
        values = learner(x).squeeze(1)
        return ts.weighted(values, w, first=x[:, 0])

    expected = (learner.module(data).detach().squeeze(1) * weights).sum() / weights.sum()
    update = learner.update(loss, (data, weights), micro_batch=2)
    assert float(expected) == pytest.approx(float(update.loss), rel=1e-14)
    assert float((data[:, 0] * weights).sum() / weights.sum()) == pytest.approx(
        float(update.metrics["first"])
    )
    assert float(update.weight) == 6.5


@given(total=st.integers(1, 300), limit=st.integers(1, 60))
def test_parts_are_as_few_and_as_even_as_can_be(total, limit):
    sizes = balanced_micro_batches(total, limit)
    assert (sum(sizes), len(sizes)) == (total, math.ceil(total / limit))
    assert max(sizes) <= limit
    assert max(sizes) - min(sizes) <= 1


def test_sixteen_by_five_is_four_fours(make_learner):
    learner = make_learner(nn.Linear(2, 1))
    seen = []

    def loss(x):
        seen.append(len(x))
        return learner(x).squeeze(1)

    learner.update(loss, torch.ones(16, 2), micro_batch=5)
    assert seen == [4, 4, 4, 4]
