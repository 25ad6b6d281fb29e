# SPDX-License-Identifier: Apache-2.0
"""`ts.defaults`: torch's default dtype and device for a block."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

import torch

from truestep.core.device_specific import require_usable_device
from truestep.core.errors import OptionError
from truestep.core.result_display import RenderableType, Result

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # all that torch takes as a default
NOT_GOVERNED = (
    "tensors and modules that exist already, and what is made like them (torch.zeros_like, tensor.new_zeros)",
    "whole numbers and truth values: torch.tensor(3) and torch.arange(3) are int64",
    "arrays: torch.tensor(array) and torch.as_tensor(array) keep their dtype, torch.from_numpy their place too",
    "torch.Generator(), which is the CPU's",
    "other threads: the device holds for this one alone, the dtype for all",
)


@dataclass(frozen=True, kw_only=True)
class Defaults(Result):
    """The default dtype and device of a block, and what they do not govern."""

    dtype: str | None
    device: str | None
    not_governed: tuple[str, ...] = NOT_GOVERNED
    _open: list[ExitStack] = field(default_factory=list, repr=False, compare=False)

    def __rich__(self) -> RenderableType:
        dtype, device = self.dtype or "as before", self.device or "as before"
        return "\n  ".join([f"default dtype {dtype}, device {device}; not governed:", *self.not_governed])

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(torch.set_default_dtype, torch.get_default_dtype())
            if self.dtype:
                torch.set_default_dtype(getattr(torch, self.dtype))
            if self.device:
                undo.enter_context(torch.device(self.device))
            self._open.append(undo.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.pop().close()


def defaults(*, dtype: torch.dtype | None = None, device: str | torch.device | None = None) -> Defaults:
    """Return a block in which torch makes new tensors of `dtype` and on `device`; both are put back when it ends.

    They are put back also after an exception, and blocks nest. The default of complex numbers follows the dtype: float64
    makes complex128. What the block does not govern is in its `not_governed`: existing tensors and modules, whole numbers,
    arrays, generators, other threads. Inside the block leave `torch.set_default_device` alone.

    Args:
        dtype: float16, bfloat16, float32 or float64.
        device: where new tensors and modules lie.

    Raises:
        OptionError: for a dtype that can't be a default, a device that is not there, or where neither is given.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_default_dtype.html
    """
    if dtype is None and device is None:
        raise OptionError("ts.defaults() changes nothing. Give dtype=torch.float64, device='cuda', or both.")
    if dtype is not None and dtype not in DTYPES:
        raise OptionError(
            f"dtype={dtype!r} can't be torch's default, which is for numbers with a fraction: {', '.join(map(str, DTYPES))}. "
            "Name other dtypes where a tensor is made: torch.zeros(3, dtype=torch.int64)."
        )
    return Defaults(
        dtype=str(dtype).removeprefix("torch.") if dtype else None,
        device=str(require_usable_device(device)) if device is not None else None,
    )
