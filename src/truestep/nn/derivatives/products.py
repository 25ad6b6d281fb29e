# SPDX-License-Identifier: Apache-2.0
"""Products of a Jacobian or a Hessian with a vector, without the matrix."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.core.errors import LossError, OptionError
from truestep.core.module_inspection import as_module
from truestep.nn.derivatives.derivative_targets import (
    FunctionToDifferentiate,
    Patterns,
    derivative_parameters,
    detach_if_grad_disabled,
    load_forward_mode_rules,
)
from truestep.nn.derivatives.side_effect_free_call import preserve_modules_while_deriving

Names = Sequence[str] | None


def jvp(
    function: Callable[..., Tensor], *inputs: Any, tangent: Any, parameters: Patterns | None = None
) -> Tensor:
    """Return how the output changes along `tangent`: the Jacobian-vector product, of the output's shape.

    As `torch.func.jvp`, but with respect to named parameters too, in full precision, with a module's buffers left alone, and by
    two reverse passes where an operation has no forward derivative.

    Args:
        function: a module, a learner, or any function of `inputs`.
        inputs: tensors.
        tangent: the direction: a tensor of the input's shape, a tuple for several inputs, a dict by name for parameters.
        parameters: the parameters to differentiate by, as for `ts.jacobian`; the inputs by default.

    Raises:
        LossError: the function returns no floating-point tensor, or an input has no derivative.
        OptionError: `tangent` does not fit, or a parameter does not exist.
    """
    what = FunctionToDifferentiate.of(function, inputs, parameters)
    tangents = _vector_as_tuple_like_primals("tangent", tangent, what.primals, what.names)
    load_forward_mode_rules()
    with what.disable_autocast():
        try:
            pushed: Tensor = torch.func.jvp(what.call, what.primals, tangents)[1]
        except NotImplementedError:
            output, pull_back = torch.func.vjp(what.call, *what.primals)[:2]
            # The pull-back is linear in its argument, so that its own pull-back is the Jacobian itself.
            (pushed,) = torch.func.vjp(pull_back, torch.zeros_like(output))[1](tangents)
    return detach_if_grad_disabled(pushed)


def vjp(
    function: Callable[..., Tensor], *inputs: Any, cotangent: Tensor, parameters: Patterns | None = None
) -> Any:
    """Return the gradient of Σ cotangent · output: the vector-Jacobian product, of the inputs' or the parameters' shapes.

    As `torch.func.vjp`, but with respect to named parameters too, in full precision, with a module's buffers and `.grad` left
    alone. It is part of the graph while gradients are on. Arguments are those of `jvp`, except `cotangent`, a tensor of the
    output's shape. It returns a tensor for one input, a tuple for several, a dict by name for parameters.
    """
    what = FunctionToDifferentiate.of(function, inputs, parameters)
    with what.disable_autocast():
        output, pull_back = torch.func.vjp(what.call, *what.primals)[:2]
        _check_same_shape_as_primal("cotangent", cotangent, output, "the output")
        return what.pack(pull_back(cotangent.to(output.dtype)))


def hvp(
    loss: Callable[[], Tensor], model: object, vector: Mapping[str, Tensor], *, parameters: Patterns = "*"
) -> dict[str, Tensor]:
    """Return the Hessian of `loss()` by a model's parameters times `vector`, a dict by name, without a graph.

    The loss is any function that calls the model and returns a scalar; it is evaluated once, and may be run under `no_grad`.
    The model's buffers, modes and `.grad` stay as they are.

    Args:
        loss: a function without arguments that returns the mean loss of a batch.
        model: the module, or learner, whose parameters are meant.
        vector: one tensor for each of the parameters, by name.
        parameters: names and patterns of those to differentiate by; all by default. They must not be frozen.

    Source: Pearlmutter, "Fast Exact Multiplication by the Hessian", Neural Computation 6(1), 1994.
    """
    if not callable(loss):
        raise OptionError(
            f"ts.hvp needs a function that returns the loss, got {type(loss).__name__}: write lambda: loss_of(net(batch))."
        )
    module = as_module(model, "ts.hvp")
    named = derivative_parameters(module, parameters)
    vectors = _vector_as_tuple_like_primals("vector", vector, list(named.values()), list(named))
    if frozen := [name for name, leaf in named.items() if not leaf.requires_grad]:
        raise OptionError(
            f"{', '.join(frozen[:6])} is frozen, and has no gradient. Choose others by parameters=, or ts.unfreeze it."
        )
    leaves = list(named.values())
    device = leaves[0].device
    with torch.enable_grad(), preserve_modules_while_deriving(module, device, None):
        gradients = torch.autograd.grad(
            _check_scalar_loss(loss()), leaves, create_graph=True, materialize_grads=True
        )
        along = [(gradient * each).sum() for gradient, each in zip(gradients, vectors, strict=True)]
        slope = torch.stack(along).sum()
        if not slope.requires_grad:  # a loss that is linear in its parameters
            return {name: torch.zeros_like(leaf) for name, leaf in named.items()}
        products = torch.autograd.grad(slope, leaves, materialize_grads=True)
    return dict(zip(named, products, strict=True))


def _check_scalar_loss(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
        what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise LossError(
            f"ts.hvp needs a scalar loss that depends on the model's parameters, got {what}. Return loss.mean(), call the model "
            "inside the function, and not under torch.inference_mode()."
        )
    return value


def _vector_as_tuple_like_primals(
    name: str, value: Any, primals: Sequence[Tensor], names: Names
) -> tuple[Tensor, ...]:
    """Return a user's vector as one tensor for each primal: it is a dict by name, where these have names."""
    if names is None:
        given = list(value) if isinstance(value, tuple | list) else [value]
        if len(given) != len(primals):
            raise OptionError(f"{name} has {len(given)} tensors for {len(primals)} inputs; give one each.")
        labels = [f"input {number}" for number in range(len(primals))]
    elif not isinstance(value, Mapping):
        raise OptionError(f"{name} is a dict of tensors by name here, got {type(value).__name__}.")
    else:
        if missing := [each for each in names if each not in value]:
            raise OptionError(f"{name} lacks {', '.join(missing[:6])}; give zeros where it does not move.")
        if strange := [each for each in value if each not in names]:
            raise OptionError(f"{', '.join(strange[:6])} is none of the parameters: {', '.join(names)}.")
        given, labels = [value[each] for each in names], [f"the parameter {each!r}" for each in names]
    for each, primal, label in zip(given, primals, labels, strict=True):
        _check_same_shape_as_primal(name, each, primal, label)
    return tuple(each.to(primal.dtype) for each, primal in zip(given, primals, strict=True))


def _check_same_shape_as_primal(name: str, value: Any, like: Tensor, what: str) -> None:
    if not isinstance(value, Tensor) or value.shape != like.shape:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise OptionError(f"{name} has {got}, and {what} has shape {tuple(like.shape)}; they must be alike.")
    if value.is_complex() or value.device != like.device:
        raise OptionError(
            f"{name} is {value.dtype} on {value.device}, and {what} {like.dtype} on {like.device}; give real numbers there."
        )
