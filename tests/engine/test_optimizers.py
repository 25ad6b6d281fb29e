# SPDX-License-Identifier: Apache-2.0
"""Factories, groups, what is refused, Muon beside AdamW, LBFGS, sparse and complex parameters, averages."""

import copy
import dataclasses
import math
import re

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine.option_conflicts import CONFLICTS


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(self.embedding(x)))


def names_of(learner):
    names = {id(p): name for name, p in learner.named_parameters()}
    return [[names[id(p)] for p in group["params"]] for o in learner.optimizers for group in o.param_groups]


def test_decay_goes_to_weights_and_not_to_biases_norms_and_embeddings(make_learner):
    learner = make_learner(Model(), lambda p: torch.optim.AdamW(p.decayed(0.1), lr=1e-3))
    assert names_of(learner) == [
        ["body.0.weight", "head.weight"],
        ["embedding.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.bias"],
    ]
    assert [group["weight_decay"] for group in learner.optimizers[0].param_groups] == [0.1, 0.0]


def test_groups_by_prefix_first_match_wins_and_a_rest(make_learner):
    learner = make_learner(
        Model(),
        lambda p: torch.optim.SGD(p.groups({"head.weight": {"lr": 0.5}, "head.": {"lr": 0.1}}), lr=0.01),
    )
    assert names_of(learner)[:2] == [["head.weight"], ["head.bias"]]
    assert [group["lr"] for group in learner.optimizers[0].param_groups] == [0.5, 0.1, 0.01]
    with pytest.raises(ts.OptionError, match=r"No parameter's name starts with 'haed\.'.*embedding\.weight"):
        make_learner(Model(), lambda p: torch.optim.SGD(p.groups({"haed.": {}}), lr=0.01))


def test_named_parameters_and_modules_can_be_chosen_by(make_learner):
    learner = make_learner(Model(), lambda p: [torch.optim.SGD(p.named, lr=0.1)])
    assert learner.optimizers[0].param_groups[0]["param_names"][0] == "embedding.weight"
    chosen = []
    make_learner(
        Model(),
        lambda p: (
            chosen.extend(p.where(lambda name, module, q: isinstance(module, nn.LayerNorm))),
            torch.optim.SGD(p, lr=0.1),
        )[1],
    )
    assert [tuple(p.shape) for p in chosen] == [(4,), (4,)]


def foreign(p):
    return torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)


def twice(p):
    return [torch.optim.SGD(p, lr=0.1), torch.optim.SGD(p, lr=0.1)]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (foreign, r"holds 1 parameter not of the learner \(shapes \[\(3,\)\]\)"),
        (twice, "stepped twice"),
        (
            lambda p: torch.optim.SGD(list(p)[:2], lr=0.1),
            r"leaves out 5 trainable parameters \(body\.0\.bias",
        ),
        (lambda p: [], "leaves out 7"),
        (lambda p: None, "returned NoneType"),
        (lambda p: 0.1, "returned float"),
        (lambda p: {"lr": 0.1}, "returned dict"),
        (
            torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1),
            r"Pass a function: lambda p: torch\.optim\.SGD",
        ),
    ],
)
def test_optimizers_that_train_something_else_are_refused(make_learner, make_context, factory, message):
    context = make_context()
    with pytest.raises(ts.OptionError, match=message):
        make_learner(Model(), factory, context)
    assert context.learners == {}


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.ReLU(), "ReLU has no parameters"),
        (nn.LazyLinear(3), "Call the module once on an example"),
        ([nn.Linear(1, 1), 3], "a list of them; got a list"),
        (None, "got a NoneType"),
        (nn.Linear, "got the class Linear itself"),
    ],
)
def test_modules_that_can_not_be_trained_are_refused(make_learner, module, message):
    with pytest.raises(ts.OptionError, match=message):
        make_learner(module)


def test_a_lazy_module_that_has_seen_an_example_trains(make_learner):
    module = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    with torch.no_grad():
        module(torch.ones(2, 5))
    learner = make_learner(module, ema=ts.EMA())
    assert not bool(learner.update(lambda x: learner(x).sum(1), torch.randn(4, 5)).skipped)


def test_a_module_made_in_inference_mode_is_refused_and_its_copy_trains(make_learner):
    with torch.inference_mode():
        module = nn.Linear(5, 1)
    with pytest.raises(
        ts.OptionError, match=r"weight, bias\) were made under torch\.inference_mode\(\).*copy\.deepcopy"
    ):
        make_learner(module)
    learner = make_learner(copy.deepcopy(module))
    learner.update(lambda x: learner(x).sum(1), torch.randn(4, 5))


@pytest.mark.parametrize("modules", [dict, list])
def test_several_modules_with_one_optimizer_and_a_loss_of_the_whole_batch(make_learner, modules):
    parts = {"image": nn.Linear(4, 3), "text": nn.Linear(2, 3)}
    learner = make_learner(parts if modules is dict else list(parts.values()), micro_batch=2)
    image, text = ("image", "text") if modules is dict else (0, 1)
    assert learner[image] is parts["image"]

    def contrast(batch):
        scores = learner[image](batch[0]) @ learner[text](batch[1]).T
        return nn.functional.cross_entropy(scores, torch.arange(len(scores)))

    before = [part.weight.detach().clone() for part in parts.values()]
    learner.update(contrast, (torch.randn(6, 4), torch.randn(6, 2)), decomposable=False)
    assert not any(torch.equal(a, part.weight) for a, part in zip(before, parts.values(), strict=True))


def test_muon_takes_matrices_and_adamw_the_rest(make_learner):
    learner = make_learner(Model(), lambda p: ts.muon_with_adamw(p, lr=0.02))
    assert [type(o).__name__ for o in learner.optimizers] == ["Muon", "AdamW"]
    assert names_of(learner)[0] == ["body.0.weight", "head.weight"]
    data = torch.arange(5)
    loss = lambda x: learner(x).square().sum(1)
    losses = [float(learner.update(loss, data, micro_batch=2).loss) for _ in range(40)]
    assert losses[-1] < 0.3 * losses[0]
    reasons = {c.name: c.value for c in learner._parts.context.choices}
    assert [v for k, v in sorted(reasons.items()) if k.startswith("fused")] == ["False", "True"]


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_lbfgs_solves_a_quadratic_however_it_is_split(make_learner, line_search, micro_batch):
    torch.manual_seed(0)
    data, target = torch.randn(20, 4, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    learner = make_learner(
        nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 1)),
        lambda p: torch.optim.LBFGS(p, max_iter=30, tolerance_change=0.0, line_search_fn=line_search),
        precision="float64",
    )
    loss = lambda batch: (learner(batch[0]).squeeze(1) - batch[1]).square()
    for _ in range(6):
        update = learner.update(loss, (data, target), micro_batch=micro_batch)
    solution = torch.linalg.lstsq(torch.cat([data, torch.ones(20, 1)], 1), target[:, None]).solution
    assert torch.allclose(learner.module[1].weight[0], solution[:4, 0], atol=1e-6)
    assert (learner._parts.counters.updates, bool(update.skipped)) == (6, False)
    assert float(update.gradient_norm) < 1e-4


def test_lbfgs_sees_the_same_dropout_in_every_evaluation(make_learner):
    torch.manual_seed(0)
    learner = make_learner(
        nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 1)),
        lambda p: torch.optim.LBFGS(p, max_iter=10, line_search_fn="strong_wolfe"),
    )
    masks = []
    learner.module[1].register_forward_hook(lambda m, i, out: masks.append((out == 0).clone()))
    data = torch.randn(8, 4)
    learner.update(lambda x: (learner(x).squeeze(1) - 1).square(), data)
    assert len(masks) > 3
    assert all(torch.equal(masks[0], mask) for mask in masks)


@pytest.mark.parametrize("nonfinite", ["raise", "skip"])
@pytest.mark.parametrize("when", ["first", "later"])
def test_lbfgs_that_meets_nan_goes_back(make_learner, make_context, snapshot, same, nonfinite, when):
    learner = make_learner(
        nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
        lambda p: torch.optim.LBFGS(p, max_iter=4),
        make_context(nonfinite=nonfinite),
    )
    good = lambda x: learner(x).squeeze(1).square()
    learner.update(good, torch.randn(6, 2))
    calls = []

    def bad(x):
        calls.append(1)
        return good(x) * (math.nan if when == "first" or len(calls) > 1 else 1.0)

    before = snapshot(learner)
    data = torch.randn(6, 2)
    if nonfinite == "raise":
        with pytest.raises(ts.NonFiniteError, match="parameters are as before"):
            learner.update(bad, data)
    else:
        assert bool(learner.update(bad, data).skipped)
    after = snapshot(learner)
    assert same(before["tensors"], after["tensors"])
    assert same(before["state"]["optimizers"], after["state"]["optimizers"])
    assert not bool(learner.update(good, data).skipped)


WITH_FSDP = {
    "LBFGS": {"optimizer": torch.optim.LBFGS},
    "torch.optim.Adafactor": {"optimizer": torch.optim.Adafactor},
    "torch.optim.SGD(fused=True) or Adagrad(fused=True)": {
        "optimizer": lambda p: torch.optim.SGD(p, lr=0.1, fused=True)
    },
    "a clip of whole gradients": {"clip": ts.ClipAdaptive()},
    'micro_batch="auto"': {"micro_batch": "auto"},
    "compile=True": {"compile": True},
    "sparse gradients (nn.Embedding(..., sparse=True))": {"module": "sparse"},
    "complex parameters": {"module": "complex"},
}
CONFLICTING = {
    **{(option, 'strategy="fsdp"'): options for option, options in WITH_FSDP.items()},
    ("LBFGS", "a precision with a loss scale"): {"optimizer": torch.optim.LBFGS, "precision": "fp16-mixed"},
    ("LBFGS", "a second optimizer in the same learner"): {
        "optimizer": lambda p: [torch.optim.LBFGS(list(p)[:1]), torch.optim.SGD(list(p)[1:], lr=0.1)]
    },
    ("LBFGS", "float32 master weights (O2)"): {"optimizer": torch.optim.LBFGS, "precision": "O2"},
    ("a precision with a loss scale", "complex parameters"): {"module": "complex", "precision": "fp16-mixed"},
    ("ts.ClipValue", "complex parameters"): {"module": "complex", "clip": ts.ClipValue(1.0)},
    ("ts.ClipAdaptive", "sparse gradients (nn.Embedding(..., sparse=True))"): {
        "module": "sparse",
        "clip": ts.ClipAdaptive(),
    },
    ("half-precision weights", "sparse gradients (nn.Embedding(..., sparse=True))"): {
        "module": "sparse",
        "precision": "bf16",
    },
    ("torch.optim.SGD(fused=True)", "half-precision weights on a CPU"): {
        "optimizer": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        "precision": "bf16",
    },
    ("loss_scale", "a precision without a loss scale"): {"loss_scale": 128.0},
}


class ComplexScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, x):
        return (self.inner(x) * self.phase).abs().sum(1)


def module_of(kind):
    torch.manual_seed(0)
    kinds = {
        "complex": ComplexScale,
        "sparse": lambda: nn.Sequential(nn.Embedding(6, 3, sparse=True), nn.Linear(3, 1)),
        "plain": lambda: nn.Linear(3, 1),
    }
    return kinds[kind]()


def test_every_conflict_has_its_case_here():
    assert {(conflict.first, conflict.second) for conflict in CONFLICTS} == set(CONFLICTING)


@pytest.mark.parametrize("conflict", CONFLICTS, ids=lambda c: f"{c.first} and {c.second}")
def test_every_conflict_raises_with_its_reason(make_learner, conflict, monkeypatch):
    if conflict.second == 'strategy="fsdp"':  # real processes are in tests/engine/strategies
        monkeypatch.setattr("truestep.engine.weights.is_divided_over_ranks", lambda parameter: True)
    options = dict(CONFLICTING[conflict.first, conflict.second])
    module = module_of(options.pop("module", "plain"))
    with pytest.raises(ts.OptionError) as caught:
        make_learner(module, options.pop("optimizer", None), **options)
    others = [c for c in CONFLICTS if c is not conflict and c.reason in str(caught.value)]
    assert conflict.reason in str(caught.value) or (
        others and conflict.second == "float32 master weights (O2)"
    )


@dataclasses.dataclass(frozen=True)
class Halved(ts.Clip):
    def apply(self, gradients, norm):
        torch._foreach_mul_(gradients.tensors, 0.5)


@dataclasses.dataclass(frozen=True)
class HalvedAnywhere(Halved):
    takes_parts = True


def test_a_clip_of_ones_own_sees_parts_of_gradients_only_where_it_says_that_it_may(make_learner, monkeypatch):
    monkeypatch.setattr("truestep.engine.weights.is_divided_over_ranks", lambda parameter: True)
    with pytest.raises(ts.OptionError, match="takes_parts = True"):
        make_learner(nn.Linear(3, 1), clip=Halved())
    assert make_learner(nn.Linear(3, 1), clip=HalvedAnywhere())._parts.policy.clip == HalvedAnywhere()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("clip", [None, ts.ClipNorm(0.1), ts.ClipValue(0.05)])
@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9), torch.optim.Adagrad])
def test_sparse_gradients_train_as_dense_ones_do(make_learner, clip, make):
    batch = torch.tensor([1, 3, 3, 5, 1])

    def train(sparse, micro_batch):
        module = module_of("sparse")
        module[0].sparse = sparse
        learner = make_learner(module, make, clip=clip)
        for _ in range(3):
            update = learner.update(
                lambda x: learner(x).squeeze(1).square() * 4, batch, micro_batch=micro_batch
            )
        return float(update.gradient_norm), learner.module.state_dict()

    norm, weights = train(False, None)
    for micro_batch in (None, 2):
        other_norm, other = train(True, micro_batch)
        assert norm == pytest.approx(other_norm, rel=1e-5)
        for name in weights:
            assert torch.allclose(weights[name], other[name], atol=1e-6), name


def test_complex_parameters_train_and_are_averaged(make_learner):
    learner = make_learner(
        module_of("complex"),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        clip=ts.ClipNorm(0.5),
        ema=ts.EMA(decay=0.5),
    )
    data = torch.randn(7, 3)
    start = float(learner.update(learner, data).loss)
    for micro_batch in (None, 3, 1) * 10:
        update = learner.update(learner, data, micro_batch=micro_batch)
    assert float(update.loss) < 0.5 * start
    assert learner._parts.average.state_dict()["phase"].dtype == torch.complex64
    reasons = [c for c in learner._parts.context.choices if c.name.startswith("fused")]
    assert (reasons[0].value, "complex" in reasons[0].reason) == ("False", True)


def test_the_average_has_its_closed_form_and_is_put_in_place_for_a_while(make_learner):
    learner = make_learner(nn.Linear(2, 1), precision="float64", ema=ts.EMA(decay=0.9, starts_at=2))
    weights = [learner.weight.detach().clone()]
    for _ in range(12):
        learner.update(lambda x: learner(x).squeeze(1), torch.randn(3, 2))
        weights.append(learner.weight.detach().clone())
    expected = weights[2]
    for number in range(1, 11):  # updates after the start
        decay = min(0.9, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * weights[2 + number]
    now = learner.weight.detach().clone()
    seen = []

    def look(module):
        seen.append(module.weight.detach().clone())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), learner.averaged() as module:
        look(module)
    assert torch.allclose(expected, seen[0], rtol=1e-12)
    assert torch.equal(now, learner.weight)
    data = torch.randn(4, 2, dtype=torch.float64)
    averaged = learner.evaluate(lambda x: learner(x).squeeze(1), [data], averaged=True)
    assert averaged == pytest.approx(
        float((data @ expected.T).mean() + learner._parts.average.state_dict()["bias"])
    )
    assert torch.equal(now, learner.weight)


@pytest.mark.parametrize("decay", [-0.1, 1.0, math.nan])
def test_averages_that_mean_nothing_are_refused(make_learner, decay):
    with pytest.raises(ts.OptionError, match="the decay lies between"):
        ts.EMA(decay=decay)
    learner = make_learner(nn.Linear(1, 1))
    with pytest.raises(ts.OptionError, match=r"ema=ts\.EMA\(\)"), learner.averaged():
        pass


def test_torchs_fused_half_precision_sgd_is_still_wrong():
    """When this fails, torch has mended its kernel and `has_faulty_fused_kernel` can go for that release on."""
    torch.manual_seed(0)
    results = []
    for fused in (True, False):
        parameter = nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
        parameter.grad = torch.ones(64, dtype=torch.bfloat16)
        optimizer = torch.optim.SGD([parameter], lr=0.5, fused=fused)
        optimizer.step()
        results.append(parameter.detach().float())
    if torch.__version__.startswith("2.13"):
        assert not torch.equal(*results)


def test_with_master_weights_the_masters_are_averaged_not_what_they_are_rounded_to(make_learner):
    learner = make_learner(
        nn.Linear(3, 2),
        lambda p: torch.optim.SGD(p, lr=1e-4),
        precision="O2",
        loss_scale=1.0,
        ema=ts.EMA(decay=0.5, warmup=False),
    )
    before = learner._parts.weights.stepped[0].detach().clone()
    learner.update(lambda batch: learner(batch).sum(1), torch.ones(4, 3))
    expected = (before + learner._parts.weights.stepped[0].detach()) / 2
    torch.testing.assert_close(expected, learner._parts.average.tensors[0], rtol=1e-6, atol=1e-7)
    assert not torch.equal(before, learner._parts.average.tensors[0])


def test_parameters_that_came_after_the_learner_are_refused_by_name_and_frozen_ones_are_not(make_learner):
    net = make_learner(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), name="net")
    loss = lambda x: net(x).squeeze(1).square()
    net.module[1] = nn.Linear(2, 1)
    first = net.module[1].weight.detach().clone()
    for _ in range(2):
        with pytest.raises(ts.OptionError, match=r"2 parameters of 'net' \(1\.weight, 1\.bias\).*replaced"):
            net.update(loss, torch.ones(3, 2))
    net.module[1].requires_grad_(False)
    before = net.module[0].weight.detach().clone()
    net.update(loss, torch.ones(3, 2))
    assert torch.equal(net.module[1].weight, first)
    assert not torch.equal(net.module[0].weight, before)


def trainable(parameters):
    return torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.1)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("how", ["update", "accumulating"])
def test_a_parameter_that_was_left_out_frozen_and_is_unfrozen_later_is_refused_by_name(
    make_learner, precision, how
):
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    ts.freeze(module, "0")
    net = make_learner(module, trainable, name="net", precision=precision)
    loss = lambda x: net(x).squeeze(1).square()

    def update():
        if how == "update":
            net.update(loss, torch.ones(3, 2))
        else:
            with net.accumulating() as part:
                part.backward(loss(torch.ones(3, 2)))

    update()
    thawed = ts.unfreeze(net, "0.bias")
    before = [p.detach().clone() for p in module.parameters()]
    for _ in range(2):
        with pytest.raises(
            ts.OptionError, match=r"1 parameters of 'net' \(0\.bias\) were frozen when the learner"
        ):
            update()
    assert all(map(torch.equal, before, module.parameters()))
    thawed.undo()
    update()
    assert not torch.equal(before[2], module[1].weight)


def test_a_frozen_parameter_that_its_optimizer_holds_or_is_given_later_trains_when_it_is_unfrozen(
    make_learner,
):
    def moved_after_thawing(factory, prepare):
        module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        ts.freeze(module, "0")
        net = make_learner(module, factory)
        net.update(lambda x: net(x).squeeze(1).square(), torch.ones(3, 2))
        ts.unfreeze(module, "0")
        prepare(net.optimizers[0], module[0])
        before = module[0].bias.detach().clone()
        net.update(lambda x: net(x).squeeze(1).square(), torch.ones(3, 2))
        return not torch.equal(before, module[0].bias)

    assert moved_after_thawing(lambda p: torch.optim.SGD(p, lr=0.1), lambda optimizer, layer: None)
    add = lambda optimizer, layer: optimizer.add_param_group({"params": list(layer.parameters())})
    assert moved_after_thawing(trainable, add)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: ts.Retention(last="2"), r"last='2'.* was given a str .*ts\.Retention\(last=2\)"),
        (lambda _: ts.Retention(best=1.5), "best=1.5.* was given a float where a whole number"),
        (lambda _: ts.Retention(every="9"), "every='9'.* whole number"),
        (lambda make: make(nn.Linear(1, 1)).accumulating(weight="3"), "weight='3'.* was given a str"),
        (lambda _: ts.EMA(decay="0.9"), r"decay='0\.9'.* was given a str .*ts\.EMA\(decay=0\.999\)"),
        (lambda _: ts.EMA(starts_at=2.5), "starts_at=2.5.* was given a float where a whole number"),
        (lambda _: ts.LossScale(initial=None), r"initial=None.*ts\.LossScale\(initial=65536\.0\)"),
        (lambda _: ts.LossScale(growth_interval="2"), "growth_interval='2'.* whole number"),
        (lambda make: make(nn.Linear(1, 1), starts_at="5"), r"run\.learner\(starts_at=5\)"),
    ],
)
def test_options_of_a_type_that_counts_nothing_say_what_to_write(make_learner, make, message):
    with pytest.raises(ts.OptionError, match=message):
        make(make_learner)


class OutsideTorch(torch.optim.SGD):
    pass


class Around(torch.optim.Optimizer):
    """As AcceleratedOptimizer of Accelerate: it holds the optimizer that the user made."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups


@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "name"), [(torch.optim.AdamW, "torch.optim.AdamW"), (OutsideTorch, "OutsideTorch")]
)
def test_an_optimizer_inside_others_is_named_by_its_own_class(make_learner, layers, kind, name):
    module = nn.Linear(2, 1)
    made = kind(module.parameters(), lr=0.25)
    for _ in range(layers):
        made = Around(made)
    with pytest.raises(ts.OptionError, match=rf"lambda p: {re.escape(name)}\(p, lr=0\.25\)"):
        make_learner(module, made)
