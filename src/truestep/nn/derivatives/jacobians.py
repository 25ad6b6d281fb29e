# SPDX-License-Identifier: Apache-2.0
"""One Jacobian for each example of a batch."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor
from torch.func import jacfwd, jvp, vjp, vmap

from truestep.core.errors import LossError, check_choice, check_number
from truestep.core.text_formatting import plural
from truestep.nn.derivatives.derivative_targets import (
    FunctionToDifferentiate,
    Patterns,
    load_forward_mode_rules,
)

Mode = Literal["auto", "forward", "reverse"]
MODES = ("auto", "forward", "reverse")
MIXED = "a Jacobian of one example is not its own"


def jacobian(
    function: Callable[..., Tensor],
    *inputs: Any,
    parameters: Patterns | None = None,
    mode: Mode = "auto",
    chunk_size: int | None = None,
) -> Any:
    """Return the Jacobian of each example's output, never that of one example by another's input.

    The function is called with the whole batch, and returns one row per example. Nothing of a module changes: buffers,
    modes, `.grad`. It runs in full precision, with autocast off, and uncompiled. With gradients on the result is part of the
    graph, so that a loss can be made of it. For a function without a batch use `torch.func.jacrev` or `jacfwd`.

    Args:
        function: a module, a learner, or any function of `inputs` whose examples don't depend on each other.
        inputs: tensors of shape (batch, ...).
        parameters: differentiate with respect to these parameters instead of the inputs: names, names of modules, patterns;
            `"*"` is all. Then the module runs example by example (`torch.func.vmap`), and inputs may be integers.
        mode: "reverse" computes a row for each output, "forward" a column for each input (or parameter); "auto" takes whichever
            are fewer, and "reverse" where an operation has no forward derivative.
        chunk_size: how many rows or columns are computed at once (for parameters: how many examples); all by default. Fewer need
            less memory.

    Returns:
        A tensor for one input, a tuple for several, a dict by name for parameters; each of shape `(batch, *output, *input)`.

    Raises:
        LossError: an input has no derivative, or the output is not one row per example; an example's output depends on another
            example's input (looked at once for each function); batch normalisation in training mode.
        OptionError: a parameter does not exist, or an option has a value that there is not.

    Source: https://docs.pytorch.org/docs/stable/func.html
    """
    check_choice("ts.jacobian", "mode", mode, MODES)
    if chunk_size is not None:
        check_number("ts.jacobian", "chunk_size", chunk_size, example=64, least=1)
    what = FunctionToDifferentiate.of(function, inputs, parameters, MIXED)
    batch = _common_batch_size(what.inputs)
    with what.disable_autocast():
        if what.names is None:
            return what.pack(_jacobian_by_inputs(function, what, batch, mode, chunk_size))
        return what.pack(_jacobian_by_parameters(what, mode, chunk_size))


def _common_batch_size(inputs: tuple[Any, ...]) -> int:
    shapes = [tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__ for each in inputs]
    rows = {shape[0] if isinstance(shape, tuple) and shape else None for shape in shapes}
    if len(rows) != 1 or None in rows:
        raise LossError(
            f"A Jacobian per example needs inputs with one row per example each, got {', '.join(map(str, shapes))}. For a function "
            "without a batch use torch.func.jacrev."
        )
    return int(rows.pop() or 0)


def _jacobian_by_inputs(
    function: object, what: FunctionToDifferentiate, batch: int, mode: Mode, chunk_size: int | None
) -> list[Tensor]:
    """Row i of all examples at once is one product with the batch: no example depends on another's input."""
    output, pull_back = vjp(what.call, *what.primals)[:2]
    _check_one_row_per_example(output, batch)
    refuse_mixed_examples(function, output, pull_back)
    num_inputs = sum(math.prod(each.shape[1:]) for each in what.primals)

    def forward() -> list[Tensor]:
        return [_forward_mode_columns(what, index, output, chunk_size) for index in range(len(what.primals))]

    def reverse_mode_rows() -> list[Tensor]:
        rows = vmap(pull_back, chunk_size=chunk_size)(_one_hot_cotangents(output))
        return [
            row.movedim(0, 1).reshape(batch, *output.shape[1:], *primal.shape[1:])
            for row, primal in zip(rows, what.primals, strict=True)
        ]

    return _choose_mode_by_sizes(mode, forward, reverse_mode_rows, num_inputs < math.prod(output.shape[1:]))


def _choose_mode_by_sizes(
    mode: Mode, forward: Callable[[], list[Tensor]], reverse: Callable[[], list[Tensor]], few_columns: bool
) -> list[Tensor]:
    if mode == "reverse" or (mode == "auto" and not few_columns):
        return reverse()
    load_forward_mode_rules()
    try:
        return forward()
    except NotImplementedError as error:  # an operation without a forward derivative
        if mode == "forward":
            raise LossError(
                f'{str(error).splitlines()[0]} Write mode="reverse", or "auto", which goes in reverse then.'
            ) from error
        return reverse()


def _forward_mode_columns(
    what: FunctionToDifferentiate, chosen: int, output: Tensor, chunk_size: int | None
) -> Tensor:
    primal = what.primals[chosen]

    def push_forward(tangent: Tensor) -> Tensor:
        tangents = [torch.zeros_like(each) for each in what.primals]
        tangents[chosen] = tangent
        pushed: Tensor = jvp(what.call, what.primals, tuple(tangents))[1]
        return pushed

    # One draw for all columns: they belong to one forward, dropout included.
    columns = vmap(push_forward, chunk_size=chunk_size, randomness="same")(_one_hot_cotangents(primal))
    return columns.movedim(0, -1).reshape(*output.shape, *primal.shape[1:])


def _one_hot_cotangents(tensor: Tensor) -> Tensor:
    """Return (numbers per example, *shape): in each, one number of every example is 1."""
    size = math.prod(tensor.shape[1:])
    eye = torch.eye(size, dtype=tensor.dtype, device=tensor.device).reshape(size, 1, *tensor.shape[1:])
    return eye.expand(size, *tensor.shape)


def _check_one_row_per_example(output: Tensor, batch: int) -> None:
    if output.ndim == 0 or len(output) != batch:
        raise LossError(
            f"The function returned shape {tuple(output.shape)} for {plural(batch, 'example')}; a Jacobian per example needs "
            "one row each. For the gradient of a scalar use torch.autograd.grad."
        )


def _jacobian_by_parameters(
    what: FunctionToDifferentiate, mode: Mode, chunk_size: int | None
) -> list[Tensor]:
    """The parameters are shared by all examples, so each example has to go through the module by itself."""
    num_parameters = sum(each.numel() for each in what.primals)
    each_one = tuple(range(len(what.primals)))

    def jacobian_of_example(*inputs: Tensor) -> tuple[Tensor, ...]:
        alone = tuple(each.unsqueeze(0) for each in inputs)

        def run_on_example(*primals: Tensor) -> Tensor:
            output = what.run(primals, alone)
            _check_one_row_per_example(output, 1)
            return output.squeeze(0)

        output, pull_back = vjp(run_on_example, *what.primals)[:2]

        def reverse_mode() -> list[Tensor]:
            eye = torch.eye(output.numel(), dtype=output.dtype, device=output.device)
            rows = vmap(pull_back)(eye.reshape(-1, *output.shape))
            pairs = zip(rows, what.primals, strict=True)
            return [row.reshape(*output.shape, *primal.shape) for row, primal in pairs]

        def forward() -> list[Tensor]:
            return list(jacfwd(run_on_example, each_one, randomness="same")(*what.primals))

        return tuple(_choose_mode_by_sizes(mode, forward, reverse_mode, num_parameters < output.numel()))

    return list(vmap(jacobian_of_example, chunk_size=chunk_size, randomness="different")(*what.inputs))


FEW = 16  # examples: every pair of them is looked at
_ROUNDING = 1000.0  # units in the last place, of the largest derivative
_right: "WeakSet[Any]" = WeakSet()

PullBack = Callable[[Tensor], tuple[Tensor, ...]]


def refuse_mixed_examples(function: Any, output: Tensor, pull_back: PullBack) -> None:
    """Raise a LossError where an example's output depends on another's input; a function that is right is looked at once.

    Some examples' outputs are gone back from, and what arrives at the other examples' inputs has to be zero. Among more than
    `FEW` examples two such groups stand for all.
    """
    if len(output) < 2 or _was_function_checked_before(function) or not _has_readable_values(output):
        return
    for group in _example_groups_to_separate(len(output), output.device):
        gradients = pull_back(group.to(output.dtype).reshape(-1, *[1] * (output.ndim - 1)).expand_as(output))
        for gradient in gradients:
            # NaN, of a zero times an infinite derivative, says nothing
            size = gradient.detach().abs().nan_to_num(0.0, 0.0)
            noise = _ROUNDING * torch.finfo(size.dtype).eps * size.max() if size.numel() else 0.0
            if bool((size[~group] > noise).any()):
                raise LossError(_MIXED.format(shape=tuple(gradient.shape)))
    with suppress(TypeError):
        _right.add(function)


def _example_groups_to_separate(number: int, device: torch.device) -> Iterator[Tensor]:
    """Yield groups of examples, and their complements: of few examples each pair is parted by some."""
    rows = torch.arange(number, device=device)
    bits = [rows >> bit & 1 for bit in range(max(number - 1, 0).bit_length())]
    # the parity of the bits puts neighbours, and every second row, into different groups now and then
    for bit in bits if number <= FEW else [torch.stack(bits).sum(0) & 1]:
        yield bit == 1
        yield bit == 0


def _has_readable_values(output: Tensor) -> bool:
    """Whether its values are there: not on the device meta, nor within another transform or a compilation."""
    inside = torch._C._functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling()
    return not inside and output.device.type != "meta"


def _was_function_checked_before(function: Any) -> bool:
    """Whether it was looked at before; a method or a lambda that is made anew each time was not."""
    try:
        return function in _right
    except TypeError:  # no weak reference, or no hash
        return False


_MIXED = (
    "Some examples' outputs depend on other examples' inputs. ts.jacobian takes the first dimension of an input (here of shape "
    "{shape}) for the batch, and would add up the derivatives of all outputs by one example's input. For a function of one point, "
    "without a batch, write torch.func.jacrev(function)(x); for several such points, "
    "torch.func.vmap(torch.func.jacrev(function))(x)."
)
