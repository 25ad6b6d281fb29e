# SPDX-License-Identifier: Apache-2.0
"""Multiply-adds and shapes of every call of every module, by torch's FlopCounterMode.

Counted are the multiply-adds of matrix products and convolutions, a bias's additions and everything elementwise not: a linear
layer of `a` to `b` costs a·b for each row. Causal attention is counted in full. On a meta copy torch runs no fused kernel, so
that recurrent layers, attention and encoder layers come apart into products that are counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from truestep.core.errors import ModelError
from truestep.model.calling import (
    Arguments,
    ForwardModulePath,
    preserve_model_state,
    run_forward,
    shapes_in_structure,
    tensors_in_structure,
)
from truestep.model.summaries.memory import run_without_values


@dataclass
class ModuleCallRecord:
    """What happened to one module, over all its calls."""

    num_calls: int = 0
    multiply_adds: int = 0
    inputs: Any = ()
    outputs: Any = ()
    output_dtype: str = ""
    order: int = 0  # of its first call


@dataclass
class ForwardOperationCounts:
    """What one forward of a model does."""

    calls: dict[str, ModuleCallRecord] = field(default_factory=dict)
    multiply_adds: int = 0
    notes: list[str] = field(default_factory=list)


def count_operations(model: nn.Module, arguments: Arguments) -> ForwardOperationCounts:
    """Count on a meta copy, and where a model does not run there, on the model itself with fused kernels off."""
    counted, reason = run_without_values(_count_operations_of_model, model, arguments)
    if counted is None:
        with preserve_model_state(model), _disable_fused_kernels():
            counted = _count_operations_of_model(model, arguments)
        counted.notes.append(
            f"Counted by running the model itself on this batch, since it does not run without values ({reason})."
        )
    return counted


def _count_operations_of_model(model: nn.Module, arguments: Arguments) -> ForwardOperationCounts:
    counter = FlopCounterMode(display=False, custom_mapping=FORMULAS)
    counted = ForwardOperationCounts()
    before: list[int] = []

    def record_module_call(name: str, inputs: Any, output: Any) -> None:
        calls = counted.calls.setdefault(name, ModuleCallRecord(order=len(counted.calls)))
        calls.num_calls += 1
        calls.multiply_adds += (counter.get_total_flops() - before.pop()) // 2
        if calls.num_calls == 1:
            calls.inputs, calls.outputs = shapes_in_structure(inputs), shapes_in_structure(output)
            dtypes = [each.dtype for each in tensors_in_structure(output)]
            calls.output_dtype = str(dtypes[0]).removeprefix("torch.") if dtypes else ""

    followed = ForwardModulePath(model).followed(
        lambda *_: before.append(counter.get_total_flops()), record_module_call
    )
    with counter, torch.no_grad(), followed:
        run_forward(model, arguments)
    counted.multiply_adds = counter.get_total_flops() // 2
    return counted


def _bilinear_flops(first: Any, weight: Any, second: Any, *_: Any, **__: Any) -> int:
    """Count nn.Bilinear, xᵀAy for each output: a product with A, then one with y; given are the shapes of x, A and y."""
    rows = max(first[0], second[0])
    num_outputs, width, other = weight[-3], weight[-2], weight[-1]
    return int(2 * rows * num_outputs * (width * other + other))


def _matrix_vector_flops(matrix: Any, *_: Any, **__: Any) -> int:
    return int(2 * matrix[0] * matrix[1])


def _dot_product_flops(first: Any, *_: Any, **__: Any) -> int:
    return int(2 * first[0])


# What torch's counter has no formula for; its unit is the operation, two to a multiply-add.
FORMULAS: dict[Any, Any] = {
    torch.ops.aten._trilinear: _bilinear_flops,
    torch.ops.aten.mv: _matrix_vector_flops,
    torch.ops.aten.addmv: lambda _, matrix, *__, **___: _matrix_vector_flops(matrix),
    torch.ops.aten.dot: _dot_product_flops,
    torch.ops.aten.vdot: _dot_product_flops,
}


@contextmanager
def _disable_fused_kernels() -> Iterator[None]:
    """Switch off the kernels that torch counts as nothing: fused recurrences, attention and encoder layers."""
    fastpath = torch.backends.mha.get_fastpath_enabled()
    onednn = torch._C._get_mkldnn_enabled()
    with (
        torch.backends.cudnn.flags(enabled=False),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        torch.backends.mha.set_fastpath_enabled(False)
        # torch.backends.mkldnn.flags warns of Intel's GPUs where there are none
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(onednn)
            torch.backends.mha.set_fastpath_enabled(fastpath)


def model_error_of_forward(model: nn.Module, arguments: Arguments) -> ModelError | None:
    """Run the model itself, and return why it fails."""
    try:
        with preserve_model_state(model):
            run_forward(model, arguments)
    except ModelError as error:
        return error
    return None
