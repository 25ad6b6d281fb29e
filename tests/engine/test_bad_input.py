# SPDX-License-Identifier: Apache-2.0
"""Bad input: each error says what, why and what to write instead; nothing is lost, and the next update works."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import truestep as ts

DATA = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


def new(make_learner, make_context, policy="raise", **options):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    return make_learner(
        module,
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        make_context(nonfinite=policy),
        ema=ts.EMA(),
        schedule=lambda o: ts.warmup_constant(o, warmup_steps=9),
        **options,
    )


def good(net):
    return lambda x: net(x).squeeze(1).square()


LOSSES = {
    "no tensor": (
        lambda net, x: 3.0,
        r"returned float, not a tensor, and .*leave out \.item\(\).*Return one loss per example",
    ),
    "none": (lambda net, x: None, "returned NoneType, not a tensor: its `return` is missing"),
    "no labels": (
        lambda net, x: SimpleNamespace(loss=None).loss,
        "the .loss of a transformers .* no `labels`",
    ),
    "an output": (
        lambda net, x: SimpleNamespace(logits=net(x), loss=None),
        r"whole output of a model .*its \.logits",
    ),
    "a tuple": (lambda net, x: (net(x).squeeze(1), 1), "returned tuple"),
    "detached": (lambda net, x: net(x).squeeze(1).detach(), "has no gradient.*detached"),
    "item": (lambda net, x: torch.tensor(net(x).detach().mean().item()), "has no gradient"),
    "no_grad": (lambda net, x: torch.no_grad()(lambda: net(x).squeeze(1))(), r"torch\.no_grad\(\)"),
    "of other rows": (
        lambda net, x: net(torch.randn(8, 3))[:, 0],
        r"shape \(8,\), expected \(6,\).*torch\.randn\(len\(x\).*ts\.weighted\(values\)",
    ),
    "of pairs": (
        lambda net, x: torch.cat([net(x)[:, 0], net(x * 2)[:, 0]]),
        r"shape \(12,\), expected \(6,\).*torch\.randn\(len\(x\).*ts\.weighted\(values\)",
    ),
    "of places": (
        lambda net, x: (net(x) - x).square().flatten(),
        r"\(18,\), expected \(6,\).*flattened, or places were picked, out of \(6, 3\).*ts\.weighted\(losses, mask\)",
    ),
    "of some places": (
        lambda net, x: (net(x) - x).square()[x.cumsum(1) < 1e9][:9],
        r"\(9,\), expected \(6,\).*flattened, or places were picked, out of \(6, 3\)",
    ),
    "of the largest": (
        lambda net, x: (net(x)[:, 0] - x[:, 0]).square().topk(4).values,
        r"\(4,\), expected \(6,\).*picked out of 6 values.*ts\.weighted\(losses, kept\).*ts\.gather\(losses\.detach\(\)\)",
    ),
    "of all outputs": (
        lambda net, x: net(x.repeat(1, 3).reshape(-1, 3)).flatten(),
        r"torch\.randn\(len\(x\)",
    ),
    "broadcast": (
        lambda net, x: (net(x) - x.sum(1)).square(),
        r"shape \(6, 6\).*\(6, 1\) and targets of shape \(6,\) were broadcast.*squeeze\(1\)",
    ),
    "a column": (lambda net, x: net(x), r"shape \(6, 1\), expected \(6,\): one value per example"),
    "too few": (lambda net, x: net(x).squeeze(1)[:3], r"shape \(3,\), expected \(6,\)"),
    "nothing": (lambda net, x: net(x).squeeze(1)[:0], "nothing to take a mean of"),
    "complex": (lambda net, x: torch.complex(net(x), net(x)).squeeze(1), "needs real floating-point values"),
    "broadcasting weights": (
        lambda net, x: ts.weighted(net(x), torch.ones(6)),
        "would broadcast and count examples twice",
    ),
    "metric of another shape": (
        lambda net, x: ts.weighted(net(x), m=torch.ones(6)),
        "The metric 'm' must be a tensor",
    ),
    "metric that is a number": (lambda net, x: ts.weighted(net(x), m=1.0), "got float"),
    "weighted number": (lambda net, x: ts.weighted(1.0), r"ts\.weighted needs a tensor of losses, got float"),
    "not this learner": (
        lambda net, x: torch.ones(6, requires_grad=True) * net(x).detach().squeeze(1),
        "No gradient reached any parameter",
    ),
    "nan": (lambda net, x: net(x).squeeze(1) * math.nan, "is nan at step 0; the update was not applied"),
    "inf": (lambda net, x: net(x).squeeze(1) * math.inf, "The loss of .* is (nan|inf|-inf)"),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("clip", [None, ts.ClipNorm(1.0)])
def test_losses_that_can_not_be_trained_on(make_learner, make_context, snapshot, same, kind, clip):
    learner = new(make_learner, make_context, clip=clip)
    learner.update(good(learner), DATA)
    for parameter in learner.parameters():
        parameter.grad = None
    before = snapshot(learner)
    loss, message = LOSSES[kind]
    with pytest.raises(ts.LossError, match=message):
        learner.update(lambda x: loss(learner, x), DATA)
    assert same(before, snapshot(learner))
    assert not bool(learner.update(good(learner), DATA).skipped)


def test_a_scalar_where_the_batch_is_split_is_refused_and_fine_where_it_is_not(
    make_learner, make_context, snapshot, same
):
    learner = new(make_learner, make_context)
    learner.module[1].eval()
    before = snapshot(learner)
    with pytest.raises(ts.LossError, match=r'A mean over a part is not a part of the mean.*reduction="none"'):
        learner.update(lambda x: learner(x).mean(), DATA, micro_batch=4)
    assert same(before, snapshot(learner))
    assert float(learner.update(lambda x: learner(x).mean(), DATA).weight) == 6


@pytest.mark.parametrize("loss", [torch.ones(3), None, "cross_entropy", 3.0])
def test_a_loss_that_is_no_function_is_refused(make_learner, make_context, loss):
    learner = new(make_learner, make_context)
    with pytest.raises(ts.LossError, match=r"instead of a loss function.*def loss\(batch\)"):
        learner.update(loss, DATA)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_all_weights_zero_is_skipped_and_counted(make_learner, make_context, snapshot, same, micro_batch):
    learner = new(make_learner, make_context)
    if micro_batch:
        learner.module[1].eval()
    before = snapshot(learner)
    update = learner.update(
        lambda x: ts.weighted(learner(x).squeeze(1), torch.zeros(len(x))), DATA, micro_batch=micro_batch
    )
    assert (bool(update.skipped), learner._parts.counters.skipped, learner._parts.counters.updates) == (
        True,
        1,
        0,
    )
    assert math.isnan(update.loss)
    after = snapshot(learner)
    assert same(before["tensors"], after["tensors"])
    for part in ("optimizers", "schedules", "averages"):
        assert same(before["state"][part], after["state"][part])


@pytest.mark.parametrize("policy", ["skip", "rollback"])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_what_is_not_finite_is_skipped_with_all_its_traces(
    make_learner, make_context, snapshot, same, policy, where, micro_batch
):
    """Also in batch normalisation: one NaN would stay in its running statistics for ever."""
    learner = new(make_learner, make_context, policy)
    if micro_batch:
        learner.module[1].eval()
    learner.update(good(learner), DATA)
    before = snapshot(learner)
    if where == "loss":
        bad = DATA.clone()
        bad[3] = math.nan
        loss = good(learner)
    else:
        bad = DATA
        loss = lambda x: (learner(x).squeeze(1) * 0).sqrt()
    for count in (1, 2):
        update = learner.update(loss, bad, micro_batch=micro_batch)
        assert (True, count) == (bool(update.skipped), learner._parts.counters.skipped_in_a_row)
        assert math.isnan(update.loss) == (where == "loss")
    after = snapshot(learner)
    assert same(before["tensors"], after["tensors"])
    assert same(before["state"]["optimizers"], after["state"]["optimizers"])
    learner.update(good(learner), DATA)
    assert (
        learner._parts.counters.updates,
        learner._parts.counters.skipped,
        learner._parts.counters.skipped_in_a_row,
    ) == (2, 2, 0)


def test_keep_keeps(make_learner, make_context):
    learner = new(make_learner, make_context, "keep")
    update = learner.update(lambda x: learner(x).squeeze(1) * math.nan, DATA)
    assert (bool(update.skipped), learner._parts.counters.updates, math.isnan(update.loss)) == (
        False,
        1,
        True,
    )
    assert bool(torch.isnan(learner.module[0].weight).all())


@pytest.mark.parametrize("precision", ["float32", "float64", "bf16-mixed", "bf16"])
def test_a_gradient_that_is_not_finite_though_its_loss_is_changes_nothing(
    make_learner, make_context, snapshot, same, precision
):
    """Without a clip nothing measures the gradient's norm; it is checked all the same."""
    learner = new(make_learner, make_context, precision=precision)
    before = snapshot(learner)
    with pytest.raises(ts.NonFiniteError, match=r"finite .* but its gradient is not"):
        learner.update(lambda x: (learner(x).squeeze(1) * 0).sqrt(), DATA)
    assert same(before, snapshot(learner))


def test_parameters_that_were_not_finite_before_are_named_in_the_error(make_learner, make_context):
    learner = new(make_learner, make_context)
    with torch.no_grad():
        learner._parts.weights.parameters[0].fill_(float("nan"))
    with pytest.raises(ts.NonFiniteError, match="were not finite before it already"):
        learner.update(good(learner), DATA)


def test_an_update_inside_another_or_inside_averaged_is_refused(make_learner, make_context):
    learner = new(make_learner, make_context)  # it keeps an average

    def nested(x):
        learner.update(good(learner), DATA)
        return good(learner)(x)

    with pytest.raises(ts.OptionError, match="while an update is under way"):
        learner.update(nested, DATA)
    with learner.averaged(), pytest.raises(ts.OptionError, match="inside averaged"):
        learner.update(good(learner), DATA)
    learner.update(good(learner), DATA)


@pytest.mark.filterwarnings("ignore:Batch normalisation")
def test_metrics_that_differ_between_parts_are_refused_with_nothing_lost(
    make_learner, make_context, snapshot, same
):
    learner = new(make_learner, make_context)
    before, calls = snapshot(learner), []

    def loss(x):
        calls.append(x)
        return ts.weighted(good(learner)(x), **{f"m{len(calls)}": torch.ones(len(x))})

    with pytest.raises(ts.LossError, match="same names each time"):
        learner.update(loss, DATA, micro_batch=2)
    assert same(before, snapshot(learner))


def test_errors_of_the_users_own_code_go_through_with_nothing_lost(
    make_learner, make_context, snapshot, same
):
    learner = new(make_learner, make_context, clip=lambda gradients: gradients["missing"])
    before = snapshot(learner)
    with pytest.raises(KeyError, match="missing"):
        learner.update(good(learner), DATA)
    assert same(before, snapshot(learner))


def test_an_update_shows_its_values(make_learner, make_context):
    learner = new(make_learner, make_context)
    update = learner.update(good(learner), DATA)
    assert repr(update) == f"Update(loss={float(update.loss):.6g}, skipped=False)"


@pytest.mark.parametrize("name", ["first", "second"])
def test_names_of_learners_are_their_own(make_learner, make_context, name):
    context = make_context()
    make_learner(nn.Linear(1, 1), context=context, name="first")
    if name == "first":
        with pytest.raises(ts.OptionError, match="There is a learner called 'first' already"):
            make_learner(nn.Linear(1, 1), context=context, name=name)
    else:
        make_learner(nn.Linear(1, 1), context=context, name=name)


def test_a_state_of_something_else_is_refused_with_every_difference(make_learner, snapshot, same):
    small = make_learner(nn.Linear(2, 1), name="net")
    large = make_learner(nn.Sequential(nn.Linear(3, 1)), name="net", ema=ts.EMA())
    before = snapshot(small)
    with pytest.raises(
        ts.CheckpointError,
        match=r"ema= is gone\n *missing     weight \[1, 2\].*\n *missing     bias",
    ):
        small.load_training_state(large.training_state())
    other = make_learner(nn.Linear(3, 1), name="net")
    with pytest.raises(ts.CheckpointError, match=r"reshaped    weight \[1, 3\], expected \[1, 2\]"):
        small.load_training_state(other.training_state())
    assert same(before, snapshot(small))


def test_words_of_gan_programs_are_answered_with_the_line_to_write(tmp_path):
    """A penalty by another name, a critic in another place, a turn, learners and loss exchanged."""
    with ts.Run(tmp_path, seed=0, quiet=True, progress=False, doctor=False) as run:
        net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        x = torch.ones(4, 2)

        def loss(batch):
            return net(batch).squeeze(1)

        with pytest.raises(AttributeError, match=r"ts\.gradient_penalty\(critic, real, fake\)"):
            _ = ts.wgan_gp
        with pytest.raises(ts.OptionError, match=r"ts\.gradient_penalty\(critic, real, fake\)"):
            ts.gradient_penalty([x, x], net)
        with pytest.raises(ts.OptionError, match=r"if run\.step % 5 == 0"):
            net.update(loss, x, every=5)
        with pytest.raises(ts.OptionError, match=r"run\.learner\(module, optimizer, starts_at=1000\)"):
            net.update(loss, x, starts_at=10)
        with pytest.raises(ts.OptionError, match=r"ts\.update\(\[a, b\], loss, batch\)"):
            ts.update(loss, [net], x)
