# SPDX-License-Identifier: Apache-2.0
"""`ts.parameters`: every parameter of a model once, with its size, norms, gradient, and what shares it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from truestep.core.device_specific import to_float64
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.module_inspection import as_module
from truestep.core.result_display import RenderableType, Result
from truestep.core.text_formatting import bytes_text, number_or_dash, number_text


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """One parameter; norms are Euclidean, None where there is no value (no gradient, a meta or a lazy parameter)."""

    name: str
    also: tuple[str, ...]  # its other names, where it is shared
    shape: tuple[int, ...] | None  # None until a lazy module has seen a batch
    dtype: str
    device: str
    trainable: bool
    num_elements: int
    size_bytes: int
    norm: float | None
    gradient_norm: float | None
    gradient_share: float | None  # of the squared norm of all gradients: these shares add up to 1
    gradient_to_value: float | None
    remarks: tuple[str, ...]  # "all zero", "gradient all zero", "not finite", "no gradient", "lazy"


@dataclass(frozen=True, kw_only=True)
class ParameterTable(Result, HelpfulAttributes):
    """A model's parameters, shared ones once."""

    _called: ClassVar[str] = "A table of ts.parameters"
    _variable: ClassVar[str] = "table"

    rows: tuple[ParameterRow, ...]
    num_elements: int
    num_trainable: int
    size_bytes: int
    gradient_norm: float | None  # of all gradients together

    def __rich__(self) -> RenderableType:
        from truestep.core.rich_imports import Group, Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("name", overflow="fold")
        for heading in ("shape", "dtype"):
            table.add_column(heading, no_wrap=True)
        for heading in ("count", "norm", "gradient", "share"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("remarks", overflow="fold")
        for row in self.rows:
            table.add_row(*_parameter_cells(row))
        frozen = self.num_elements - self.num_trainable
        total = f"{self.num_elements:,} parameters, {frozen:,} of them frozen, {bytes_text(self.size_bytes)}"
        if self.gradient_norm is not None:
            total += f"; norm of all gradients {number_text(self.gradient_norm)}"
        return Group(table, "", total)


def _parameter_cells(row: ParameterRow) -> list[str]:
    shared = [f"also {name}" for name in row.also]
    return [
        row.name,
        "?" if row.shape is None else " × ".join(map(str, row.shape)) or "scalar",
        row.dtype,
        f"{row.num_elements:,}",
        number_or_dash(row.norm),
        number_or_dash(row.gradient_norm),
        "-" if row.gradient_share is None else f"{row.gradient_share:.1%}",
        ", ".join([*(() if row.trainable else ("frozen",)), *row.remarks, *shared]),
    ]


def parameters(model: object) -> ParameterTable:
    """Count and list the parameters of a module or a learner: shape, dtype, device, norms, gradients, sharing.

    Norms are computed on the device in float32 or better and read at once.
    """
    module = as_module(model, "ts.parameters")
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    listed = list(names)
    norms = _norms_of_tensors([_readable_values(parameter) for parameter in listed])
    gradients = _norms_of_tensors([_readable_values(parameter.grad) for parameter in listed])
    known = [value for value in gradients if value is not None]
    total = math.hypot(*known) if known else None
    rows = tuple(
        _make_parameter_row(parameter, names[parameter], norm, gradient, total)
        for parameter, norm, gradient in zip(listed, norms, gradients, strict=True)
    )
    return ParameterTable(
        rows=rows,
        num_elements=sum(row.num_elements for row in rows),
        num_trainable=sum(row.num_elements for row in rows if row.trainable),
        size_bytes=sum(row.size_bytes for row in rows),
        gradient_norm=total,
    )


def _readable_values(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or tensor.is_meta or is_lazy(tensor):
        return None
    # of a sparse gradient its values
    return tensor.detach() if tensor.layout is torch.strided else tensor.detach().coalesce().values()


@torch.no_grad()
def _norms_of_tensors(tensors: Sequence[Tensor | None]) -> list[float | None]:
    """Return the norms; values of one device are brought over together."""
    norms: dict[int, Tensor] = {}
    for index, tensor in enumerate(tensors):
        if tensor is not None:
            wide = tensor if tensor.is_complex() or tensor.dtype == torch.float64 else tensor.float()
            norms[index] = to_float64(torch.linalg.vector_norm(wide))
    found: list[float | None] = [None] * len(tensors)
    for device in {norm.device for norm in norms.values()}:
        there = [index for index, norm in norms.items() if norm.device == device]
        for index, value in zip(there, torch.stack([norms[index] for index in there]).tolist(), strict=True):
            found[index] = value
    return found


def _make_parameter_row(
    parameter: nn.Parameter, names: list[str], norm: float | None, gradient: float | None, total: float | None
) -> ParameterRow:
    lazy = is_lazy(parameter)
    count = 0 if lazy else parameter.numel()
    return ParameterRow(
        name=names[0],
        also=tuple(names[1:]),
        shape=None if lazy else tuple(parameter.shape),
        dtype=str(parameter.dtype).removeprefix("torch."),
        device=str(parameter.device),
        trainable=parameter.requires_grad,
        num_elements=count,
        size_bytes=0 if lazy else count * parameter.element_size(),
        norm=norm,
        gradient_norm=gradient,
        gradient_share=(gradient / total) ** 2 if gradient is not None and total else None,
        gradient_to_value=gradient / norm if gradient is not None and norm else None,
        remarks=tuple(_parameter_remarks(parameter, norm, gradient, has_others=total is not None)),
    )


def _parameter_remarks(
    parameter: nn.Parameter, norm: float | None, gradient: float | None, *, has_others: bool
) -> list[str]:
    if is_lazy(parameter):
        return ["lazy"]
    remarks = []
    if norm == 0 and parameter.dim() > 1:  # biases start at zero
        remarks.append("all zero")
    if any(value is not None and not math.isfinite(value) for value in (norm, gradient)):
        remarks.append("not finite")
    if gradient == 0:
        remarks.append("gradient all zero")
    if parameter.requires_grad and gradient is None and has_others:
        remarks.append("no gradient")
    return remarks
