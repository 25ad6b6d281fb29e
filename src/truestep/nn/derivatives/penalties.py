# SPDX-License-Identifier: Apache-2.0
"""Penalties on a critic's gradient with respect to its inputs."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from truestep.core.argument_errors import raises_option_errors
from truestep.core.errors import LossError, OptionError, check_choice, check_number
from truestep.core.per_example_random import rand
from truestep.core.text_formatting import a_type, plural
from truestep.nn.derivatives.side_effect_free_call import (
    check_differentiable,
    half_to_float32,
    half_to_float32_under_autocast,
    preserve_modules_while_deriving,
)

Inputs = Tensor | Sequence[Tensor]
Place = Literal["interpolates", "real", "fake"]

PLACES = ("interpolates", "real", "fake")
SIDES = ("two", "one")
_INSTEAD = "Give dense floating-point tensors (images.float() / 255, embedded tokens); labels as conditions=."


def _positional_factor_message(after_critic: tuple[Any, ...]) -> str | None:
    """Return what to write where the number behind the examples is the penalty's factor, as other code takes it."""
    factor = after_critic[2] if len(after_critic) > 2 else None
    return _factor_as_keyword_text(factor)


def _factor_as_keyword_text(factor: object) -> str | None:
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        return None
    return (
        f"ts.gradient_penalty takes no factor, such as the {factor:g} by place here. Write it before the call: {factor:g} * "
        "ts.gradient_penalty(critic, real, fake)."
    )


@raises_option_errors("ts.gradient_penalty", _positional_factor_message)
def gradient_penalty(
    critic: Callable[..., Tensor],
    real: Inputs | None,
    fake: Inputs | None = None,
    *,
    conditions: Any = (),
    at: Place = "interpolates",
    target: float = 1.0,
    sides: Literal["two", "one"] = "two",
) -> Tensor:
    """Return (‖∇ critic‖ − target)² for each example, shape (batch,), where ∇ is taken with respect to the critic's inputs.

    Add `.mean()` of it to a scalar loss, or itself to one loss per example. Its gradient reaches the critic's parameters
    alone: `real` and `fake` are detached. The critic's buffers, modes, `.grad` and hooks stay as they are. Computed in full
    precision, with autocast off, it needs no loss scale of its own; the critic runs uncompiled.

    Args:
        critic: called as `critic(*inputs, *conditions)`. Its output is (batch,) or (batch, ...); an example's score is
            the mean of its outputs, so that a map of patches has the same scale as one number.
        real: examples of shape (batch, ...), floating-point or complex, of any rank; or several inputs in a tuple, whose
            gradients are one vector. None where it is not needed.
        fake: the same for made examples; it may be left out with `at="real"`.
        conditions: what the critic gets besides, as it is (half-precision tensors as float32 under autocast): a tensor, a
            tuple of further arguments, or a dict of named ones.
        at: where the gradient is taken: between `real` and `fake`, at a point drawn uniformly for each example, as
            `ts.rand` does; or at the `"real"` or the `"fake"` examples themselves.
        target: the norm that costs nothing: 1 for a Wasserstein critic, 0 for R1.
        sides: "one" charges only norms above the target.

    Raises:
        LossError: gradients are off, the inputs don't fit together, the critic returns no tensor of one row per example,
            its output does not depend on its inputs, or batch normalisation in training mode mixes the examples.
        OptionError: an option has a value that there is not.

    Sources: Gulrajani et al., "Improved Training of Wasserstein GANs", 2017 (interpolates, target 1, two sides); Mescheder,
    Geiger & Nowozin, "Which Training Methods for GANs do actually Converge?", 2018 (R1 is half of `at="real", target=0`).
    """
    check_choice("ts.gradient_penalty", "at", at, PLACES)
    check_choice("ts.gradient_penalty", "sides", sides, SIDES)
    check_number("ts.gradient_penalty", "target", target, example=1.0, least=0)
    _check_callable(critic, target)
    if said := _factor_as_keyword_text(fake):
        raise OptionError(said)
    points = _points_for_gradient(real, fake, at)
    positional, named = _split_condition_arguments(conditions)
    with preserve_modules_while_deriving(critic, points[0].device, "a penalty of one example is not its own"):
        inputs = [point.clone() for point in points]  # a first layer may work in place
        scores = _scores_by_example(critic(*inputs, *positional, **named), len(points[0]))
        gradients = _gradients_at_points(scores.sum(), points)
        # Divided here rather than in the scores, so that a low-precision critic sees gradients of ordinary size.
        norm = _gradient_norm_per_example(gradients) / max(scores.shape[1], 1)
        excess = norm - target
        return (excess.relu() if sides == "one" else excess).square()


def _check_callable(critic: object, target: float) -> None:
    if not callable(critic):
        raise OptionError(
            f"A critic is a module or a function of the inputs, got {type(critic).__name__}. It comes first, and is called here, "
            "between the real and the made examples: ts.gradient_penalty(critic, real, fake)."
        )
    if math.isinf(target):
        raise OptionError(f"target={target} is no norm; give 1 (Wasserstein), 0 (R1) or another number >= 0.")
    if torch.compiler.is_compiling():
        raise OptionError(
            "A gradient penalty can't be compiled: torch.compile does not currently support double backward. Leave the loss "
            "uncompiled; the critic may be compiled, the penalty then runs its original."
        )
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise LossError(
            "ts.gradient_penalty was called inside a transform of torch.func (grad, vmap, jvp, ...), which does not follow its "
            "gradient. Call it outside; or inside write the penalty with torch.func: "
            "torch.func.vmap(torch.func.grad(score_of_one_example))(real)."
        )
    if not torch.is_grad_enabled():
        raise LossError(
            "ts.gradient_penalty was called under torch.no_grad() or inference_mode(), where there is no gradient to "
            "penalise. Call it outside, or inside `with torch.inference_mode(False), torch.enable_grad():` to look at its value."
        )


def _points_for_gradient(real: Inputs | None, fake: Inputs | None, at: Place) -> list[Tensor]:
    """Return new leaves, one for each input of the critic, at which the gradient is taken."""
    if at == "interpolates":
        inputs = _interpolate_real_and_fake(
            _check_critic_inputs("real", real), _check_critic_inputs("fake", fake)
        )
    else:
        inputs = _check_critic_inputs(at, real if at == "real" else fake)
    return [half_to_float32_under_autocast(each).detach().requires_grad_() for each in inputs]


def _check_critic_inputs(name: str, value: Inputs | None) -> list[Tensor]:
    if value is None:
        raise LossError(
            f"The gradient is taken where {name} examples are needed, and {name} is None. Give them, or choose another `at`."
        )
    inputs = [value] if isinstance(value, Tensor) else list(value)
    if not inputs:
        raise LossError(f"{name} is an empty {type(value).__name__}; give the critic's inputs.")
    for tensor in inputs:
        check_differentiable(f"{name} holds", tensor, _INSTEAD, complex_too=True)
        if tensor.ndim == 0 or len(tensor) != len(inputs[0]):
            shapes = ", ".join(str(tuple(each.shape)) for each in inputs)
            raise LossError(f"The inputs in {name} need one row per example each, got shapes {shapes}.")
    return inputs


@torch.no_grad()
def _interpolate_real_and_fake(real: list[Tensor], fake: list[Tensor]) -> list[Tensor]:
    """Mix each real example with its made one, by one weight for all of an example's inputs."""
    shapes = [[tuple(each.shape) for each in side] for side in (real, fake)]
    if shapes[0] != shapes[1]:
        raise LossError(
            f"real has shapes {shapes[0]} and fake {shapes[1]}. Each real example is mixed with one made example of its shape: "
            "make as many as the batch holds, fake = generator(noise(len(real)))."
        )
    devices = {str(each.device) for each in (*real, *fake)}
    if len(devices) > 1:
        raise LossError(f"real and fake are on several devices, {sorted(devices)}; move them to one.")
    dtype = torch.promote_types(real[0].abs().dtype if real[0].is_complex() else real[0].dtype, torch.float32)
    weights = rand(len(real[0]), dtype=dtype, device=real[0].device)
    mixed = []
    for one, other in zip(real, fake, strict=True):
        share = weights.reshape(-1, *[1] * (one.ndim - 1))
        mixed.append((share * one + (1 - share) * other).to(one.dtype))
    return mixed


def _split_condition_arguments(conditions: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return what the critic gets besides its inputs, by position and by name."""
    if isinstance(conditions, Mapping):
        return [], {name: half_to_float32_under_autocast(value) for name, value in conditions.items()}
    further = conditions if isinstance(conditions, tuple | list) else (conditions,)
    return [half_to_float32_under_autocast(value) for value in further], {}


def _scores_by_example(scores: Any, batch: int) -> Tensor:
    """Return the critic's output as (batch, outputs per example)."""
    if not isinstance(scores, Tensor):
        raise LossError(
            f"The critic returned {a_type(scores)}, and a penalty is of one score per example. Say which: "
            "ts.gradient_penalty(lambda x: critic(x)[0], ...), or one penalty for each scale, added up with their weights."
        )
    if scores.ndim == 0 or len(scores) != batch:
        raise LossError(
            f"The critic returned shape {tuple(scores.shape)} for {plural(batch, 'example')}; return one row per example, "
            "(batch,) or (batch, ...), not a mean over them."
        )
    return _flatten_per_example(scores)


def _gradients_at_points(score: Tensor, points: list[Tensor]) -> list[Tensor]:
    """Return the gradient at each point, zero at those that the critic does not use; it has to use one."""
    gradients: tuple[Tensor | None, ...] = (None,)
    if score.requires_grad:
        gradients = torch.autograd.grad(score, points, create_graph=True, allow_unused=True)
    if all(each is None for each in gradients):
        raise LossError(
            "The critic's output does not depend on its inputs by anything that has a gradient. Is there a detach(), a no_grad() "
            "or a rounding in the critic?"
        )
    pairs = zip(gradients, points, strict=True)
    return [torch.zeros_like(point) if each is None else each for each, point in pairs]


def _gradient_norm_per_example(gradients: Sequence[Tensor]) -> Tensor:
    """Return the norm of each example's gradients taken as one vector; its own gradient at zero is zero, not NaN."""
    rows = [_flatten_per_example(half_to_float32(gradient)) for gradient in gradients]
    norms: list[Tensor] = [torch.linalg.vector_norm(each, dim=1) for each in rows]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms), dim=0)


def _flatten_per_example(tensor: Tensor) -> Tensor:
    return tensor.reshape(len(tensor), math.prod(tensor.shape[1:]))  # -1 does not do for no example
