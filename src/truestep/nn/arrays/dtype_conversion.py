# SPDX-License-Identifier: Apache-2.0
"""Which NumPy dtype a torch dtype is, and what a conversion to another one does to the values that are there."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truestep.core.errors import OptionError, check_number
from truestep.core.result_display import RenderableType, Result

Reals = np.ndarray[Any, Any]

# A test compares this table with what the installed torch does.
_COMMON = """bool uint8 uint16 uint32 uint64 int8 int16 int32 int64
    float16 float32 float64 complex64 complex128"""
NUMPY: dict[torch.dtype, np.dtype[Any]] = {getattr(torch, name): np.dtype(name) for name in _COMMON.split()}
TORCH = {theirs: ours for ours, theirs in NUMPY.items()}


def widen_for_numpy(dtype: torch.dtype) -> torch.dtype:
    """Return the smallest dtype that NumPy has and that holds every value of `dtype`."""
    if dtype in NUMPY:
        return dtype
    return torch.complex64 if dtype.is_complex else torch.float32  # both hold all that 16 bits and fewer can


def dtype_has_numbers(dtype: torch.dtype) -> bool:
    """Whether elements of `dtype` are numbers, one each: packed and sub-byte types, bits and quantised ones are not."""
    return dtype in NUMPY or dtype.is_complex or (dtype.is_floating_point and not str(dtype).endswith("_x2"))


def check_dtype_has_numbers(dtype: torch.dtype) -> None:
    """Raise an OptionError unless elements of `dtype` are numbers."""
    if not dtype_has_numbers(dtype):
        raise OptionError(
            f"{dtype} holds no plain numbers. For its bytes write tensor.view(torch.uint8); for the numbers of a "
            "quantised tensor tensor.dequantize()."
        )


def array_dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name as NumPy writes it."""
    return str(dtype).removeprefix("torch.")


def torch_dtype_from_numpy(dtype: Any) -> torch.dtype:
    """Return the torch dtype that a torch or NumPy dtype names, or raise an OptionError that lists what there is."""
    if isinstance(dtype, torch.dtype):
        return dtype
    try:
        return TORCH[np.dtype(dtype).newbyteorder("=")]
    except (TypeError, KeyError) as error:
        raise OptionError(
            f"dtype={dtype!r} is none that torch has. There are: {', '.join(map(str, TORCH))}, and torch's own."
        ) from error


@dataclass(frozen=True, kw_only=True)
class Rounding(Result):
    """How far values move when they take another dtype.

    Attributes:
        source: the dtype that they have.
        target: the dtype that they would have.
        num_values: how many there are; a complex number is two.
        num_rounded: how many change and stay finite.
        num_lost: how many do not fit: too large, or infinite, NaN, zero or a fraction where the target has none.
        largest_absolute: the largest change of those that are rounded.
        largest_relative: the largest change of those, as a part of the value; at most 2**-24 from float64 to float32, unless
            the value is below the target's normal range.
        example: the value that changes most, one that is lost first.
    """

    source: str
    target: str
    num_values: int
    num_rounded: int
    num_lost: int
    largest_absolute: float
    largest_relative: float
    example: str | None

    @property
    def exact(self) -> bool:
        """Whether every value stays what it is."""
        return not self.num_rounded and not self.num_lost

    def __rich__(self) -> RenderableType:
        return self.says

    @property
    def says(self) -> str:
        """The report in one sentence."""
        what = f"{self.source} to {self.target}: "
        if self.exact:
            return f"{what}all {self.num_values} values stay as they are"
        parts = [f"{self.num_lost} of {self.num_values} values do not fit"] if self.num_lost else []
        if self.num_rounded:
            parts.append(
                f"{self.num_rounded} of {self.num_values} values are rounded, by up to {self.largest_relative:.2g} of the "
                f"value; the largest change is {self.largest_absolute:.2g}"
            )
        return f"{what}{', '.join(parts)} (for one: {self.example})"


def rounding(values: Tensor | Reals, dtype: Any) -> Rounding:
    """Return what a conversion of `values` (a tensor or array) to `dtype` (torch's or NumPy's) would change.

    Nothing is converted in place. NaN that stays NaN is no change, nor is the sign of a zero.

    Raises:
        OptionError: where one of the two has no numbers to compare (quantised, packed, text), or an imaginary part would go.
    """
    if dtype is None:
        raise OptionError("rounding(values, None) does not say to which dtype: write torch.float32, say.")
    if isinstance(values, np.ndarray | np.generic):
        from truestep.nn.arrays.converting import from_numpy

        values = from_numpy(np.asarray(values))
    return measure_rounding(tensor_for_numpy(values).cpu(), torch_dtype_from_numpy(dtype))[1]


def tensor_for_numpy(tensor: Tensor) -> Tensor:
    """Return `tensor` without its graph, or raise an OptionError where it does not lie in memory as one block of numbers."""
    if not isinstance(tensor, Tensor):
        raise OptionError(f"{type(tensor).__name__} is no tensor. Write torch.as_tensor(values) first.")
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise OptionError("Inside a transform of torch.func a tensor has no values yet. Convert it outside.")
    if tensor.device.type == "meta":
        raise OptionError("A tensor on the meta device has no values, so there is nothing to convert.")
    if tensor.is_nested:
        raise OptionError("A nested tensor is several arrays. Convert each of tensor.unbind().")
    if tensor.layout != torch.strided:
        raise OptionError(f"A tensor of layout {tensor.layout} is no block. Write tensor.to_dense() first.")
    return tensor.detach()


def measure_rounding(source: Tensor, target: torch.dtype) -> tuple[Tensor, Rounding]:
    """Return `source` as `target`, and how far its values moved. Both are on the CPU."""
    check_dtype_has_numbers(source.dtype)
    check_dtype_has_numbers(target)
    if source.is_complex() and not target.is_complex:
        raise OptionError(f"{source.dtype} to {target} drops imaginary parts: write .real, .imag or .abs().")
    converted = source.to(target)
    before, after = _flat_real_numbers(source), _flat_real_numbers(converted)
    if target.is_complex and not source.is_complex():
        after = after[::2]
    with np.errstate(all="ignore"):  # a signalling NaN is a value like any other here
        changes, lost = _changes_and_lost_values(before, after, target)
        return converted, _summarize_rounding(before, changes, lost, (source.dtype, target))


def _flat_real_numbers(tensor: Tensor) -> Reals:
    """Return all numbers of a tensor in one row, in a dtype of NumPy's that holds them."""
    wide = tensor.to(widen_for_numpy(tensor.dtype)).resolve_conj().resolve_neg()
    return (torch.view_as_real(wide) if wide.is_complex() else wide).reshape(-1).numpy()


def _changes_and_lost_values(before: Reals, after: Reals, target: torch.dtype) -> tuple[Reals, Reals]:
    """Return by how much each value changes, and which values are lost."""
    if target.is_floating_point or target.is_complex:
        return _changes_against_floats(before, after.astype(np.float64))
    least, most = (0, 1) if target == torch.bool else (torch.iinfo(target).min, torch.iinfo(target).max)
    if before.dtype.kind != "f":
        return np.zeros(before.shape), (before < least) | (before > most)
    values = before.astype(np.float64)
    # float64 has no 2**63 - 1: the first value that does not fit, 2**63, it has
    above = values > least - 1.0 if least > -(2**62) else values >= float(least)
    lost = ~(above & (values < float(most + 1)))
    changes = np.abs(values - np.trunc(values))
    if target == torch.bool:
        lost |= changes != 0  # any number but 0 is True, so a fraction is not cut off
    return np.where(lost, 0.0, changes), lost


def _changes_against_floats(before: Reals, after: Reals) -> tuple[Reals, Reals]:
    if before.dtype.kind in "iu" and before.dtype.itemsize == 8:  # float64 can't hold them, but their halves
        upper, lower = before // 2**32, before % 2**32
        changes = upper.astype(np.float64) * 2.0**32 - after + lower.astype(np.float64)
        lost = ~np.isfinite(after) | ((before == 0) & (after != 0))
        return np.where(lost, 0.0, np.abs(changes)), lost
    values = before.astype(np.float64)
    kept = (np.isnan(values) & np.isnan(after)) | (values == after)
    lost = ~kept & ~(np.isfinite(values) & np.isfinite(after) & (values != 0))
    return np.where(kept | lost, 0.0, np.abs(values - after)), lost


def _summarize_rounding(
    before: Reals, changes: Reals, lost: Reals, dtypes: tuple[torch.dtype, torch.dtype]
) -> Rounding:
    sizes = np.abs(before.astype(np.float64))
    parts = np.divide(changes, sizes, out=np.zeros(changes.shape), where=changes != 0)
    worst = int(np.argmax(lost)) if lost.any() else int(np.argmax(parts)) if changes.any() else None
    return Rounding(
        source=array_dtype_name(dtypes[0]),
        target=array_dtype_name(dtypes[1]),
        num_values=before.size,
        num_rounded=int(np.count_nonzero(changes)),
        num_lost=int(np.count_nonzero(lost)),
        largest_absolute=float(changes.max(initial=0.0)),
        largest_relative=float(parts.max(initial=0.0)),
        example=None if worst is None else repr(before[worst].item()),
    )


def convert_with_rounding(source: Tensor, target: torch.dtype, *, max_rounding: float) -> Tensor:
    """Return `source` as `target`, or raise an OptionError where it would change values by more than was allowed.

    What does not fit into whole numbers is always refused: what it becomes is undefined in C.
    """
    check_number("a conversion", "max_rounding", max_rounding, example=2**-24, least=0)
    if source.dtype == target:
        return source
    converted, report = measure_rounding(source, target)
    whole = not (target.is_floating_point or target.is_complex)
    if report.num_lost and (whole or max_rounding < float("inf")):
        remedy = "Clip or scale them first" if whole else "max_rounding=math.inf lets them become inf or NaN"
        raise OptionError(f"{report.says}. {remedy}.")
    if report.largest_relative > max_rounding:
        raise OptionError(
            f"{report.says}. To allow that write max_rounding={_rounded_up_bound_text(report.largest_relative)}, or keep "
            f"{array_dtype_name(source.dtype)}."
        )
    return converted


def _rounded_up_bound_text(part: float) -> str:
    """Return a bound just above `part` as one would write it."""
    digits = f"{part:.1e}"
    return digits if float(digits) >= part else f"{part * 1.06:.1e}"
