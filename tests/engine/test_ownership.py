# SPDX-License-Identifier: Apache-2.0
"""The Ownership law: an update changes its learner and nothing else, in float16 and through growth and overflow too."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import truestep as ts

# One unit of float16, and some for the gradients of a small network.
ROUNDING = 2.0**-11 * 8


def generator():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))


def critic():
    torch.manual_seed(2)
    return nn.Sequential(spectral_norm(nn.Linear(4, 8)), nn.Tanh(), spectral_norm(nn.Linear(8, 1)))


def pair(make_learner, make_context, precision, **options):
    context = make_context(nonfinite="skip")
    if precision == "float32":
        options.pop("loss_scale", None)
    g, d = (
        make_learner(
            module,
            lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
            context,
            name=name,
            precision=precision,
            clip=ts.ClipNorm(0.3),
            **options,
        )
        for name, module in (("g", generator()), ("d", critic()))
    )
    return context, g, d


def critic_loss(g, d):
    return lambda b: (d(b[0]) - d(g(b[1]).detach())).squeeze(1).square()


def generator_loss(g, d):
    return lambda b: -d(g(b[1])).squeeze(1)


def joint_loss(g, d):
    return lambda b: (d(g(b[1])).squeeze(1) - b[0].sum(1)).square()


def batches(number):
    draw = torch.Generator().manual_seed(0)
    return [(torch.randn(8, 4, generator=draw), torch.randn(8, 3, generator=draw)) for _ in range(number)]


def vector(learner):
    return torch.cat([p.detach().double().reshape(-1) for p in learner.parameters()])


def train(make_learner, make_context, precision, scheme, number=24):
    """`scheme(context, step)` says what happens in a step; return both learners."""
    context, g, d = pair(
        make_learner, make_context, precision, loss_scale=ts.LossScale(initial=2.0**6, growth_interval=3)
    )
    for step, batch in enumerate(batches(number)):
        context.advance(step)
        scheme(step, g, d, batch)
    return g, d


def separate(_, g, d, batch):
    d.update(critic_loss(g, d), batch)
    g.update(generator_loss(g, d), batch)


def joint(_, g, d, batch):
    ts.update([g, d], joint_loss(g, d), batch)


def alternating(step, g, d, batch):
    (joint if step % 3 else separate)(step, g, d, batch)


@pytest.mark.parametrize("scheme", [separate, joint, alternating])
def test_each_learner_in_float16_follows_its_own_float32_reference(make_learner, make_context, scheme):
    reference = train(make_learner, make_context, "float32", scheme)
    half = train(make_learner, make_context, "fp16-mixed", scheme)
    start = [vector(make_learner(module)) for module in (generator(), critic())]
    for true, learner, origin in zip(reference, half, start, strict=True):
        assert learner._parts.counters.skipped == 0
        assert float(learner._parts.policy.scaler.scale) > 2.0**6  # it grew on the way
        moved = (vector(true) - origin).norm()
        assert moved > 0.1
        assert (vector(learner) - vector(true)).norm() <= ROUNDING * moved * 4


def test_learners_with_different_scales_share_a_backward(make_learner, make_context):
    def run(precision, scales):
        context = make_context()
        learners = [
            make_learner(
                module, context=context, precision=precision, loss_scale=scale, clip=ts.ClipNorm(0.3)
            )
            for module, scale in zip((generator(), critic()), scales, strict=True)
        ]
        for batch in batches(10):
            joint(0, *learners, batch)
        return learners

    for true, learner in zip(run("float32", (None, None)), run("fp16-mixed", (2.0**3, 2.0**10)), strict=True):
        assert (vector(learner) - vector(true)).norm() <= ROUNDING * vector(true).norm()


@pytest.mark.parametrize("victim", ["g", "d"])
def test_one_learners_overflow_is_its_own(make_learner, make_context, same, victim):
    """A gradient hook makes one learner overflow in step 4: the other's update is what it is without it."""

    def run(precision, overflow):
        def scheme(step, g, d, batch):
            chosen = {"g": g, "d": d}[victim]
            handle = None
            if step == 4 and overflow:
                handle = next(chosen.parameters()).register_hook(lambda gradient: gradient * float("inf"))
            joint(step, g, d, batch)
            if handle:
                handle.remove()

        return train(make_learner, make_context, precision, scheme, number=5)

    plain = dict(zip("gd", run("fp16-mixed", overflow=False), strict=True))
    struck = dict(zip("gd", run("fp16-mixed", overflow=True), strict=True))
    other = "d" if victim == "g" else "g"
    assert same(dict(plain[other].module.named_parameters()), dict(struck[other].module.named_parameters()))
    assert (struck[victim]._parts.counters.skipped, struck[other]._parts.counters.skipped) == (1, 0)
    assert struck[victim]._parts.counters.updates == 4
    before = train(make_learner, make_context, "fp16-mixed", joint, number=4)
    kept = dict(zip("gd", before, strict=True))[victim]
    assert same(
        {k: v for k, v in kept.training_state().items() if k not in ("scaler", "counters")},
        {k: v for k, v in struck[victim].training_state().items() if k not in ("scaler", "counters")},
    )
    assert float(struck[victim]._parts.policy.scaler.scale) == 0.5 * float(kept._parts.policy.scaler.scale)


@pytest.mark.parametrize("precision", ["float32", "fp16-mixed"])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_what_does_not_train_is_bit_identical_afterwards(
    make_learner, make_context, snapshot, same, precision, micro_batch
):
    """In training mode, where a forward of the other learner's batch normalisation and spectral norm writes their buffers."""
    _, g, d = pair(make_learner, make_context, precision)
    loss = generator_loss(g, d)
    if micro_batch:
        g.module[1].eval()  # a split would warn of it
    for parameter in d.parameters():
        parameter.grad = torch.ones_like(parameter)
    next(iter(d.parameters())).requires_grad_(False)
    before = snapshot(d)
    g.update(loss, batches(1)[0], micro_batch=micro_batch)
    assert same(before, snapshot(d))
    g.module[1].train()
    before = snapshot(g)
    next(iter(d.parameters())).requires_grad_(True)
    d.update(critic_loss(g, d), batches(1)[0], micro_batch=micro_batch)
    assert same(before, snapshot(g))


def test_what_does_not_train_is_bit_identical_after_an_exception(make_learner, make_context, snapshot, same):
    _, g, d = pair(make_learner, make_context, "float32")
    before = snapshot(d), snapshot(g)

    def broken(batch):
        generator_loss(g, d)(batch)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        g.update(broken, batches(1)[0])
    assert same(before, (snapshot(d), snapshot(g)))


def test_evaluation_and_accumulating_leave_the_others_too(make_learner, make_context, snapshot, same):
    _, g, d = pair(make_learner, make_context, "float32")
    before = snapshot(d)
    with g.accumulating() as update:
        update.backward(generator_loss(g, d)(batches(1)[0]))
    g.evaluate(generator_loss(g, d), batches(2))
    assert same(before, snapshot(d))


def test_a_learner_that_starts_later_is_left_alone_until_then(make_learner, make_context, snapshot, same):
    context = make_context()
    g = make_learner(generator(), context=context, starts_at=2)
    d = make_learner(critic(), context=context)
    for step in (1, 2, 3):
        context.advance(step)
        before = snapshot(g)
        update = g.update(generator_loss(g, d), batches(1)[0])
        assert (step < 2) == bool(update.skipped) == same(before, snapshot(g))
        both = ts.update([g, d], joint_loss(g, d), batches(1)[0])
        assert [step < 2, False] == [bool(u.skipped) for u in both]
    assert (g._parts.counters.updates, g._parts.counters.skipped, d._parts.counters.updates) == (4, 0, 3)


def test_a_joint_error_moves_nobody(make_learner, make_context, snapshot, same):
    context, g, d = pair(make_learner, make_context, "float32")
    stranger = make_learner(nn.Linear(1, 1), context=context)
    before = snapshot(g), snapshot(d), snapshot(stranger)
    with pytest.raises(ts.LossError, match="No gradient reached any parameter"):
        ts.update([g, d, stranger], joint_loss(g, d), batches(1)[0])
    after = snapshot(g), snapshot(d), snapshot(stranger)
    assert same(before, after)


def test_a_joint_update_is_split_as_its_learners_ask(make_learner, make_context):
    context = make_context()
    a = make_learner(nn.Linear(2, 2), context=context, micro_batch=5)
    b = make_learner(nn.Linear(2, 1), context=context, micro_batch=3)
    sizes = []
    ts.update([a, b], lambda x: (sizes.append(len(x)), b(a(x)).squeeze(1))[1], torch.randn(8, 2))
    assert sizes == [3, 3, 2]


@pytest.mark.parametrize(
    ("learners", "message"),
    [
        (lambda a, b, c: [], "takes a list of what run.learner returned"),
        (lambda a, b, c: [a, a], "same learner twice"),
        (lambda a, b, c: [a, c], "different runs"),
    ],
)
def test_wrong_sets_of_learners_are_refused(make_learner, make_context, learners, message):
    context = make_context()
    a, b = (make_learner(nn.Linear(1, 1), context=context) for _ in range(2))
    c = make_learner(nn.Linear(1, 1))
    with pytest.raises(ts.OptionError, match=message):
        ts.update(learners(a, b, c), lambda x: (a(x) + b(x) + c(x)).squeeze(1), torch.ones(2, 1))


def test_a_parameter_in_two_learners_is_refused(make_learner, make_context):
    context = make_context()
    shared = nn.Linear(2, 2)
    make_learner(nn.Sequential(shared), context=context, name="first")
    with pytest.raises(ts.OptionError, match=r"0\.weight.*belong to the learner 'first' already"):
        make_learner(nn.Sequential(shared, nn.Linear(2, 1)), context=context)
    assert list(context.learners) == ["first"]


def shrink(layer, _):
    layer.weight.data.mul_(0.9)


class Writes(nn.Module):
    """Writes to its weight while it computes, in one of the ways that people have, behind its first so many calls."""

    def __init__(self, how, behind=0):
        super().__init__()
        torch.manual_seed(4)
        self.how, self.calls, self.behind = how, 0, behind
        self.embed = nn.Embedding(6, 4, max_norm=0.5 if how == "max_norm" else None)
        if how == "hook":
            self.embed.register_forward_pre_hook(shrink)

    def forward(self, x):
        self.calls += 1
        weight = self.embed.weight
        if self.how == "other memory":
            weight.data = torch.renorm(weight.data, 2, 0, 0.9) * 0.99
        if self.how == "data" and self.calls > self.behind:
            weight.data.mul_(0.9)
        if self.how == "in place" and self.calls > self.behind:
            with torch.no_grad():
                weight.mul_(0.9)
        return self.embed((x * 2).long().clamp(-3, 2) + 3).sum(1) * x


@pytest.mark.parametrize("how", ["max_norm", "in place", "hook", "other memory", "data"])
@pytest.mark.parametrize("parts", [None, 3])
def test_weights_that_anothers_forward_writes_to_are_put_back(
    make_learner, make_context, snapshot, same, how, parts
):
    context = make_context()
    net = make_learner(nn.Linear(4, 4), context=context, micro_batch=parts)
    other = make_learner(Writes(how), context=context)
    for step, (x, _) in enumerate(batches(4)):
        context.advance(step)
        made = other(x)
        before = snapshot(other)
        net.update(lambda x: other(net(x)).square().sum(1), x)
        assert same(before, snapshot(other))
        made.sum().backward()  # a graph from before the update finds what it saved
        other.update(lambda x: other(x).square().sum(1), x)
        assert not same(before, snapshot(other))


@pytest.mark.parametrize(
    ("how", "behind", "seen"), [("in place", 1, 2), ("in place", 2, 3), ("data", 1, 2), ("data", 4, 8)]
)
def test_weights_written_to_only_later_are_told_of(
    make_learner, make_context, snapshot, same, how, behind, seen
):
    """torch counts no write through `.data`: that is looked for in the second update, the fourth, the eighth and so on."""
    context = make_context()
    net, other = (
        make_learner(nn.Linear(4, 4), context=context),
        make_learner(Writes(how, behind), context=context, name="late"),
    )
    x, _ = batches(1)[0]

    def update():
        net.update(lambda x: other(net(x)).square().sum(1), x)

    for _ in range(seen - 1):
        update()
    before = snapshot(other)
    with pytest.raises(ts.LossError, match=r"wrote to late\.embed\.weight, which the update does not train"):
        update()
    assert same(before, snapshot(other)) == (how == "data" or seen == 2)  # where there was a copy
    for _ in range(3):  # whoever goes on has them put back
        before = snapshot(other)
        update()
        assert same(before, snapshot(other))
    assert not context.is_busy


@pytest.mark.parametrize("how", ["max_norm", "in place", "hook", "data"])
@pytest.mark.parametrize("failures", [1, 2, 5])
def test_an_update_that_failed_before_it_wrote_is_not_the_first(
    make_learner, make_context, snapshot, same, how, failures
):
    context = make_context()
    net, other = (make_learner(each, context=context) for each in (nn.Linear(4, 4), Writes(how)))
    x, _ = batches(1)[0]
    for _ in range(failures):
        with pytest.raises(ZeroDivisionError):
            net.update(lambda x: 1 / 0, x)
    for _ in range(3):
        before = snapshot(other)["tensors"]
        net.update(lambda x: other(net(x)).square().sum(1), x)
        assert same(before, snapshot(other)["tensors"])


def test_weights_that_are_nan_are_not_taken_for_written_to(make_learner, make_context):
    context = make_context()
    net, other = (make_learner(nn.Linear(4, 4), context=context) for _ in range(2))
    for step, (x, _) in enumerate(batches(4)):
        context.advance(step)
        if step == 1:
            with torch.no_grad():
                other.module.weight.fill_(torch.nan)
        net.update(lambda x: net(other(x).nan_to_num()).square().sum(1), x)
