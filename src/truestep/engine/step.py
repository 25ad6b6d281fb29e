# SPDX-License-Identifier: Apache-2.0
"""From a learner's gradients to its new parameters: normalise, measure, clip, decide_steps, step."""

import math
from collections.abc import Sequence
from typing import NamedTuple
from weakref import ref

import torch
from torch import Tensor

from truestep.core.errors import LossError, NonFiniteError
from truestep.engine.clipping.base import Gradients, gradient_norms, total_gradient_norm
from truestep.engine.deferred_flags import UpdateReport
from truestep.engine.loss_results import negative_weights_error
from truestep.engine.loss_sums import LossTotals
from truestep.engine.parts import LearnerParts
from truestep.engine.policy import (
    APPLY,
    EMPTY,
    FINITE,
    OVERFLOWS,
    RAISE,
    VERDICTS,
    GradientPolicy,
    UpdateEvidence,
    UpdateVerdict,
    make_update_evidence,
    nonfinite_error,
)
from truestep.engine.result import Update, make_update
from truestep.engine.strategies import UpdateHooks

Measured = Tensor | float | None
"""What is finite if the gradient is; the norm, where that was measured."""


class LearnerStep(NamedTuple):
    """What one learner is going to do with its gradients; `evidence` and `verdict` are None where the device decides."""

    learner: LearnerParts
    gradients: Gradients
    measured: Measured
    norm: Tensor | None
    """The gradient's norm before clipping, where it was measured."""
    evidence: UpdateEvidence | None
    verdict: UpdateVerdict | None


def decide_steps(hooks: UpdateHooks, learners: Sequence[LearnerParts], sums: LossTotals) -> list[LearnerStep]:
    """Prepare every learner's gradients and decide about its step; whatever is wrong is raised before one has moved."""
    hooks.decide(sums)
    steps = []
    for learner in learners:
        gradients, measured = prepare_gradients(hooks, learner, sums)
        evidence = verdict = None
        # on an accelerator nobody waits for this update's flags: the report of an earlier one is read instead
        if learner.delayed is None:
            evidence = _read_update_flags(learner, sums, measured)
            verdict = VERDICTS[evidence][learner.policy.nonfinite]
            if verdict is RAISE:
                size = None if measured is None else float(measured)
                raise nonfinite_error_of(learner, learner.context.step, float(sums.loss), size)
        else:  # within the transaction: what the last update raises takes this one back
            receive_update_report(learner)
        norm = measured if learner.policy.measures_norm and isinstance(measured, Tensor) else None
        steps.append(tuple.__new__(LearnerStep, (learner, gradients, measured, norm, evidence, verdict)))
    return steps


def prepare_gradients(
    hooks: UpdateHooks, learner: LearnerParts, sums: LossTotals
) -> tuple[Gradients, Measured]:
    """Normalise, measure and clip a learner's gradients; return them and their norm before, or what says that it is finite."""
    weights, policy, factor = learner.weights, learner.policy, sums.factor
    if weights.hooks_are_due or (not sums.num_parts and weights.has_hooks()):  # others went backward
        weights.call_hooks(factor)
        factor = None
    gradients = weights.gather(rows_once=policy.measures_norm)
    if not gradients.tensors:
        raise LossError(
            f"No gradient reached any parameter of {learner.name!r}: the loss does not depend on it, so the update would "
            "change nothing. Does the loss function call this learner, without detach() or no_grad() on the way?"
        )
    # what the backward's seed could not know yet: the total weight, the inverse loss scale
    if policy.scaler is not None:
        policy.scaler.unscale(gradients.tensors, factor)
        policy.scaler.found_inf = hooks.joined(policy.scaler.found_inf, math.inf)
    elif factor is not None:
        torch._foreach_mul_(gradients.tensors, factor)
    measured = _measure_gradients(hooks, policy, gradients.tensors, sums)
    if policy.clip is not None:
        assert isinstance(measured, Tensor)
        if policy.clip.may_draw:  # of the whole batch, and not of its last part
            learner.context.draws.begin(0)
            learner.context.random.set(learner.context.keys.clip_key(learner.context.step, learner.name))
        policy.clip.apply(gradients, measured)
    if weights.has_half:
        weights.put_back(gradients)
    return gradients, measured


def _measure_gradients(
    hooks: UpdateHooks, policy: GradientPolicy, gradients: list[Tensor], sums: LossTotals
) -> Measured:
    """Measure gradients; the pass that looks whether they are finite looks at the losses too, where these are at hand."""
    losses = sums.copies
    if policy.measures_norm:
        norm_type = policy.clip.norm_type if policy.clip else 2.0
        sums.is_finite = sums.is_finite and not (
            losses and not all(map(math.isfinite, gradient_norms(losses)))
        )
        return hooks.joined(total_gradient_norm(gradients, norm_type), norm_type)
    if policy.finite_check is None:
        sums.is_finite = sums.is_finite and not losses
        return None
    measured = policy.finite_check([*gradients, *losses] if losses else gradients)
    sums.is_finite = sums.is_finite and not (losses and measured)
    return measured


def _read_update_flags(learner: LearnerParts, sums: LossTotals, measured: Measured) -> UpdateEvidence:
    """Read the flags, which are there already (a CPU) or have to be waited for."""
    policy = learner.policy
    if sums.may_be_empty and not sums.total:
        return EMPTY
    overflow = policy.scaler is not None and bool(policy.scaler.found_inf)
    if overflow:
        is_finite = sums.is_finite or math.isfinite(sums.loss)
    else:
        is_finite = not policy.looks or (
            (sums.is_finite or math.isfinite(sums.loss)) and (measured is None or math.isfinite(measured))
        )
        if is_finite:
            return FINITE
    return make_update_evidence(
        empty=False,
        overflow=overflow,
        is_finite=is_finite,
        overflows_in_a_row=learner.counters.overflows_in_a_row,
    )


def apply_step(step: LearnerStep, sums: LossTotals) -> Update:
    """Make one learner's step, or skip it, and tell the observer."""
    learner, evidence = step.learner, step.evidence
    learner.counters.attempts += 1
    update = make_update(learner.weights, sums, step.norm, learner.not_skipped)
    grad_mode = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)  # torch.no_grad() costs a microsecond more
    try:
        if evidence is None:
            update.skipped = _step_on_device(learner, sums, step.measured)
        else:
            if learner.policy.scaler is not None and evidence is not EMPTY:
                learner.policy.scaler.update_loss_scale()
            if step.verdict is APPLY:
                step_optimizers(learner, step.gradients)
                record_applied_update(learner)
            else:
                update.skipped = record_skipped_update(learner, evidence)
    except BaseException:
        learner.context.torn_at = learner.context.step
        raise
    finally:
        torch._C._set_grad_enabled(grad_mode)
    spent = learner.weights.spent
    spent.seen = seen = []
    for stepped in spent.looked_at:  # here, since each call costs a microsecond
        gradient = stepped.grad
        seen.append(None if gradient is None else (ref(gradient), gradient._version))
    learner.context.observer.updated(learner, update)
    return update


def step_optimizers(learner: LearnerParts, gradients: Gradients | None = None) -> None:
    """Step the optimizers with the gradients that are there, and bring master weights to the module."""
    weights, gathered = learner.weights, None
    if gradients is not None and gradients.parameters is weights.parameters:  # none is missing
        gathered = gradients.tensors
    for step in learner.steppers:
        step(gathered)
    if weights.has_masters:
        learner.weights.copy_masters()


def record_applied_update(learner: LearnerParts) -> None:
    """Count an update that was applied: schedule and average move with it."""
    learner.counters.count_applied()
    if learner.schedules.per_update:
        learner.schedules.step_after_update()
    if learner.average is not None:
        learner.average.update(learner.counters.updates)


def record_skipped_update(learner: LearnerParts, evidence: UpdateEvidence) -> Tensor:
    """Count an update that is skipped, with nothing left of it; return the flag that says so."""
    learner.buffers.restore()
    learner.counters.count_skipped(overflow=evidence in OVERFLOWS)
    return learner.was_skipped


def nonfinite_error_of(learner: LearnerParts, step: int, loss: float, norm: float | None) -> NonFiniteError:
    """Return the error for a loss or gradient of this learner that was NaN or infinite at a step."""
    return nonfinite_error(learner.name, step, loss, norm, spoilt=not learner.weights.has_finite_parameters())


# ---------------------------------------------------------------------- where the device decides


def _step_on_device(learner: LearnerParts, sums: LossTotals, measured: Measured) -> Tensor:
    """Step unless the flag is set, which nobody waits for; return it. Average and statistics follow at once."""
    assert learner.delayed is not None
    assert not isinstance(measured, float)  # on an accelerator it is a tensor
    policy = learner.policy
    flag = policy.skip_flag_on_device(sums, measured)
    for optimizer in learner.optimizers:
        optimizer.grad_scale, optimizer.found_inf = None, flag  # type: ignore[attr-defined]
    step_optimizers(learner)
    if policy.scaler is not None:
        policy.scaler.update_loss_scale(sums.weight == 0 if sums.may_be_empty else None)
    if learner.buffers and (policy.may_skip or sums.may_be_empty):
        learner.buffers.restore_where(flag)
    if learner.average is not None:  # of statistics too, so after these: 0 times NaN is NaN
        learner.average.update(learner.counters.updates + 1, 1 - flag)
    learner.delayed.send(learner.context.step, flag, sums, measured)
    return flag.bool()


def receive_update_report(learner: LearnerParts) -> None:
    """Learn what became of the last update: schedule, counters and policy follow it now."""
    report = learner.delayed.wait_for_report() if learner.delayed is not None else None
    if report is not None:
        apply_update_report(learner, report)


def apply_update_report(learner: LearnerParts, report: UpdateReport) -> None:
    """Take in what the device decided about an update."""
    counters = learner.counters
    if report.least < 0:
        counters.count_skipped()
        raise negative_weights_error()
    if not report.skipped:
        counters.count_applied()
        learner.schedules.step_after_update()
        return
    # What was skipped with weights overflowed where there is a scale, and else is not finite.
    overflow = learner.policy.scaler is not None
    evidence = make_update_evidence(
        empty=report.empty,
        overflow=overflow,
        is_finite=overflow and math.isfinite(report.loss),
        overflows_in_a_row=counters.overflows_in_a_row,
    )
    counters.count_skipped(overflow=evidence in OVERFLOWS)
    if learner.policy.judge(evidence) is RAISE:
        raise nonfinite_error_of(learner, report.step, report.loss, report.norm)
