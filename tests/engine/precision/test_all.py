# SPDX-License-Identifier: Apache-2.0
"""What every mode of precision promises, over the whole table; and apex's levels by what they mean."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.engine.precision import APEX_LEVELS, MODES, precision_named
from truestep.engine.precision.loss_scale import LossScale, Scaler
from truestep.engine.precision.weight_casting import cast_weights

ALL = sorted(MODES)
SCALED = [name for name in ALL if MODES[name].loss_scaling]
HALF = [name for name in ALL if MODES[name].weights in (torch.float16, torch.bfloat16)]


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


def batches(number):
    draw = torch.Generator().manual_seed(0)
    return [
        (torch.randn(16, 2, 8, generator=draw), torch.randint(4, (16,), generator=draw))
        for _ in range(number)
    ]


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def new_learner(make_learner, precision, optimizer=momentum, context=None, **options):
    if MODES[precision].loss_scaling:
        options.setdefault("loss_scale", LossScale(initial=2.0**8, growth_interval=4))
    options.setdefault("clip", ts.ClipNorm(1.0))
    options.setdefault("schedule", lambda o: ts.warmup_cosine(o, warmup_steps=5, total_steps=50))
    return make_learner(
        new_module(), optimizer, context, precision=precision, ema=ts.EMA(decay=0.9), **options
    )


def cross_entropy(learner):
    return lambda batch: F.cross_entropy(learner(batch[0]), batch[1], reduction="none")


def train(learner, data, **options):
    return [float(learner.update(cross_entropy(learner), batch, **options).loss) for batch in data]


@pytest.mark.parametrize("precision", ALL)
def test_losses_lie_near_float32s(make_learner, precision):
    data = batches(2) * 15
    reference = train(new_learner(make_learner, "float32"), data)
    losses = train(new_learner(make_learner, precision), data)
    assert reference[-1] < 0.7 * reference[0]
    unit = {"float32": 0.0, "float64": 1e-5}.get(precision, 0.1)
    assert losses == pytest.approx(reference, abs=unit)
    assert losses[0] == pytest.approx(reference[0], abs=min(unit, 0.02))


@pytest.mark.parametrize("precision", ALL)
@pytest.mark.parametrize("micro_batch", [None, 8])
def test_training_goes_on_from_a_state_to_the_same_bits(make_learner, same, precision, micro_batch):
    whole = new_learner(make_learner, precision, name="net")
    whole.module[1].eval()  # so that a split warns of nothing
    train(whole, batches(6), micro_batch=micro_batch)
    state = copy.deepcopy(whole.training_state())
    train(whole, batches(9)[6:], micro_batch=micro_batch)
    resumed = new_learner(make_learner, precision, name="net")
    resumed.module[1].eval()
    train(resumed, batches(2))  # it has been somewhere else
    resumed.load_training_state(state)
    resumed.load_training_state(state)
    train(resumed, batches(9)[6:], micro_batch=micro_batch)
    assert same(whole.training_state(), resumed.training_state())


@pytest.mark.parametrize("precision", ALL)
def test_types_are_restored_after_an_error_and_kept_after_updates(make_learner, precision):
    mode = MODES[precision]
    module = new_module()
    before = {name: (p.dtype, p.detach().clone()) for name, p in module.named_parameters()}
    hooks = [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()]
    with pytest.raises(ts.OptionError, match="not of the learner"):
        make_learner(
            module, lambda p: torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), precision=precision
        )
    for name, parameter in module.named_parameters():
        assert (before[name][0], True) == (parameter.dtype, torch.equal(before[name][1], parameter))
    assert hooks == [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()]
    learner = make_learner(module, momentum, precision=precision)
    train(learner, batches(2))
    with pytest.raises(ZeroDivisionError):
        learner.update(lambda batch: learner(batch[0]).sum() / 0 if 1 / 0 else None, batches(1)[0])
    kinds = {name: p.dtype for name, p in learner.module.named_parameters()}
    expected = {
        name: torch.float32 if mode.float32_norms and name.split(".")[0] in "15" else mode.weights
        for name in kinds
    }
    assert expected == kinds
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("precision", ALL)
def test_the_loss_is_computed_in_full_and_gradients_have_the_types_of_their_targets(make_learner, precision):
    learner = new_learner(make_learner, precision)
    update = learner.update(cross_entropy(learner), batches(1)[0])
    assert update.loss.dtype in (torch.float32, torch.float64)
    assert all(t.grad.dtype == t.dtype for t in learner._parts.weights.stepped)
    if MODES[precision].master_weights:
        assert {torch.float32} == {t.dtype for t in learner._parts.weights.stepped}


@pytest.mark.parametrize("precision", SCALED)
@pytest.mark.parametrize("optimizer", [momentum, lambda p: torch.optim.AdamW(p, lr=1e-3)])
def test_an_overflow_moves_nothing_but_the_scale_and_the_count(
    make_learner, snapshot, same, precision, optimizer
):
    learner = new_learner(make_learner, precision, optimizer)
    for first in (True, False):
        before = snapshot(learner)
        rate = learner.learning_rate
        handle = learner._parts.weights.parameters[0].register_hook(lambda gradient: gradient * float("inf"))
        update = learner.update(cross_entropy(learner), batches(1)[0])
        handle.remove()
        after = snapshot(learner)
        assert (True, rate) == (bool(update.skipped), learner.learning_rate)
        assert same(before["tensors"], after["tensors"])
        for part in ("optimizers", "schedules", "averages", "masters"):
            assert same(before["state"].get(part), after["state"].get(part)), part
        counters = before["state"]["counters"] | {
            name: before["state"]["counters"][name] + 1 for name in ("attempts", "skipped")
        }
        counters |= {"skipped_in_a_row": 1, "overflows_in_a_row": 1}
        assert counters == after["state"]["counters"]
        assert before["state"]["scaler"]["scale"] / 2 == after["state"]["scaler"]["scale"]
        losses = train(learner, batches(2))
        assert all(loss < 10 for loss in losses)
        assert learner._parts.counters.updates == (2 if first else 4)
        assert all(
            bool(torch.isfinite(p).all() and (p.abs() < 1e3).all()) for p in learner._parts.weights.parameters
        )


@pytest.mark.parametrize("precision", SCALED)
def test_a_fused_sgd_whose_first_step_is_skipped_keeps_sound_momentum(make_learner, precision):
    """torch leaves the buffer uninitialised then: parameters of 1e18, by chance."""
    torch.full((64, 1024), 1e18)  # memory to find again
    learner = new_learner(make_learner, precision)
    handle = learner._parts.weights.parameters[0].register_hook(lambda gradient: gradient * float("nan"))
    assert bool(learner.update(cross_entropy(learner), batches(1)[0]).skipped)
    handle.remove()
    for state in learner.optimizers[0].state.values():
        assert float(state["momentum_buffer"].abs().sum()) == 0
    fresh = new_learner(make_learner, precision, loss_scale=LossScale(initial=2.0**7))
    data = batches(3)
    assert train(fresh, data) == pytest.approx(train(learner, data), abs=1e-6)


@pytest.mark.parametrize("precision", SCALED)
def test_a_fixed_scale_stays_and_a_dynamic_one_grows(make_learner, precision):
    fixed = new_learner(make_learner, precision, loss_scale=128)
    train(fixed, batches(6))
    assert float(fixed._parts.policy.scaler.scale) == 128
    growing = new_learner(make_learner, precision, loss_scale=LossScale(initial=128.0, growth_interval=2))
    train(growing, batches(6))
    assert float(growing._parts.policy.scaler.scale) == 1024
    default = new_learner(make_learner, precision, loss_scale="dynamic")
    assert float(default._parts.policy.scaler.scale) == 65536


@pytest.mark.parametrize("precision", SCALED)
def test_a_gradient_that_overflows_at_any_scale_is_an_error_in_the_end(make_learner, precision):
    learner = new_learner(make_learner, precision, loss_scale=LossScale(initial=2.0))
    learner._parts.weights.parameters[0].register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(ts.NonFiniteError, match="its gradient is not"):
        train(learner, batches(1) * 101)
    assert learner._parts.counters.skipped == 99


@pytest.mark.parametrize("option", [0, -1, float("inf"), float("nan"), "static", [1]], ids=str)
def test_loss_scales_that_mean_nothing_are_refused(make_learner, option):
    with pytest.raises(ts.OptionError, match="loss_scale="):
        make_learner(new_module(), precision="fp16-mixed", loss_scale=option)


@pytest.mark.parametrize(
    "options", [{"growth": 1.0}, {"backoff": 1.0}, {"backoff": 0.0}, {"growth_interval": 0}]
)
def test_rules_of_a_loss_scale_that_can_not_work_are_refused(options):
    with pytest.raises(ts.OptionError, match="A dynamic loss scale grows"):
        LossScale(**options)


def test_a_scaler_reads_and_writes_torchs_own_state():
    scaler = Scaler(LossScale(initial=4.0), torch.device("cpu"))
    theirs = torch.amp.GradScaler("cpu", init_scale=1024.0)
    theirs.load_state_dict(scaler.state_dict())
    assert theirs.get_scale() == 4.0
    scaler.load_state_dict({**theirs.state_dict(), "scale": 32.0, "_growth_tracker": 7})
    assert (float(scaler.scale), int(scaler.growth_tracker)) == (32.0, 7)


def test_an_unknown_precision_lists_the_nearest_names(make_learner):
    with pytest.raises(
        ts.OptionError, match=r"no precision 'bf16_mixed'. Did you mean 'bf16-mixed'.*There are: O0"
    ):
        precision_named("bf16_mixed")
    with pytest.raises(ts.OptionError, match="no precision 'half'"):
        make_learner(new_module(), precision="half")


def test_apex_levels_are_names_for_what_they_mean():
    assert {"O0", "O1", "O2", "O3"} == set(APEX_LEVELS)
    assert {k: APEX_LEVELS[k].name for k in ("O0", "O1", "O3")} == {
        "O0": "float32",
        "O1": "fp16-mixed",
        "O3": "fp16",
    }


def test_o2_keeps_norms_masters_and_optimizer_in_float32(make_learner):
    learner = new_learner(make_learner, "O2", lambda p: torch.optim.AdamW(p, lr=1e-5))
    start = [t.detach().clone() for t in learner._parts.weights.stepped]
    train(learner, batches(3))
    kinds = {name: p.dtype for name, p in learner.module.named_parameters()}
    assert {"1.weight", "1.bias", "5.weight", "5.bias"} == {n for n, d in kinds.items() if d == torch.float32}
    assert learner.module[1].running_mean.dtype == torch.float32
    states = learner.optimizers[0].state
    assert {torch.float32} == {s["exp_avg"].dtype for s in states.values()}
    # steps of 1e-5 are lost in float16 weights near 0.1 (unit 6e-5), not in the masters
    assert all(not torch.equal(a, t) for a, t in zip(start, learner._parts.weights.stepped, strict=True))
    for weight, target in zip(learner._parts.weights.parameters, learner._parts.weights.stepped, strict=True):
        assert torch.equal(weight, target.to(weight.dtype))


def test_a_scale_may_grow_without_end_and_come_back(make_learner):
    learner = make_learner(
        nn.Linear(2, 1), precision="fp16-mixed", loss_scale=LossScale(initial=2.0**126, growth_interval=1)
    )
    for _ in range(50):
        learner.update(lambda x: learner(x).squeeze(1).float() * 2.0**-130, torch.full((4, 2), 2.0**-10))
        assert 0 < float(learner._parts.policy.scaler.scale) < float("inf")
    assert learner._parts.counters.skipped_in_a_row < 50


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("precision", ALL)
def test_a_module_of_another_type_is_brought_to_the_mode(make_learner, precision, dtype):
    learner = make_learner(new_module().to(dtype), momentum, precision=precision)
    train(learner, batches(1))
    assert MODES[precision].weights == learner.module[4].weight.dtype


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.tied = nn.Linear(2, 3)
        self.tied.weight = self.first.weight

    def forward(self, batch, *, twice):
        return {
            "scores": (self.first(batch["x"]), [self.tied(batch["x"]) * (2 if twice else 1)]),
            "kept": batch["i"],
        }


@pytest.mark.parametrize("precision", ALL)
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_structures_tied_and_frozen_parameters(make_learner, precision, micro_batch):
    module = Structured()
    module.tied.bias.requires_grad_(False)
    frozen = module.tied.bias.detach().clone()
    learner = make_learner(module, lambda p: torch.optim.AdamW(p, lr=0.1), precision=precision)
    batch = {"x": torch.randn(5, 2), "i": torch.arange(5)}

    def loss(part):
        output = learner(part, twice=True)
        assert output["kept"].dtype == torch.int64
        return output["scores"][0].sum(1) + output["scores"][1][0].sum(1)

    update = learner.update(loss, batch, micro_batch=micro_batch)
    if not bool(update.skipped):
        assert torch.equal(module.tied.bias, frozen.to(module.tied.bias.dtype))
        assert module.first.weight is module.tied.weight
        assert len(list(learner.parameters())) == 3


@pytest.mark.parametrize("weights", [torch.float16, torch.bfloat16])
def test_norms_in_float32_give_back_the_type_of_the_weights(weights):
    mode = dataclasses.replace(MODES["O2"], weights=weights)
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    cast_weights(module, mode)
    assert module(torch.ones(3, 4, dtype=weights)).dtype == weights
    assert [next(layer.parameters()).dtype for layer in module] == [weights, torch.float32, weights]
