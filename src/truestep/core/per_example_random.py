# SPDX-License-Identifier: Apache-2.0
"""`ts.rand` and `ts.randn`: random draws that belong to the examples of a batch, however it is split."""

from collections.abc import Sequence
from threading import get_ident
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from truestep.core.errors import OptionError

Size = int | Sequence[int]


def rand(
    *size: Size,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return numbers from [0, 1) as `torch.rand` does; in a loss each row belongs to its example, however the batch is split.

    Inside of an update the leading dimension is that of the batch the loss was given, `ts.rand(len(batch), ...)`, and the rows
    are drawn from the update's key: the same whole, in micro-batches and in each evaluation of LBFGS. A draw without dimensions,
    `ts.rand(())`, is one number for the whole batch. Outside, it is `torch.rand`.

    Args:
        size: the shape, as numbers or as one sequence.
        dtype: as in `torch.rand`.
        device: as in `torch.rand`, the CPU by default.
        generator: where to draw from outside of an update.

    Raises:
        LossError: the batch is split, and another number of rows was asked for than the part holds.
        OptionError: a generator was given inside of an update.
    """
    return keyed_draw(torch.rand, size, dtype, device, generator)


def randn(
    *size: Size,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return normal numbers as `torch.randn` does; in a loss each row belongs to its example, however the batch is split.

    See `ts.rand`, whose arguments it takes.
    """
    return keyed_draw(torch.randn, size, dtype, device, generator)


class DrawSpec(NamedTuple):
    """What is drawn: `torch.rand` or `torch.randn`, the shape of one row, type and device."""

    draw: Any
    row: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class ExampleDrawer(Protocol):
    """What draws for the examples of an update that is under way; the engine has one for each training."""

    outer: "ExampleDrawer | None"
    """That of another training, in whose loss this update is made."""

    def rows(self, kind: DrawSpec, num_rows: int | None) -> Tensor:
        """Return so many rows of the part that is computed; None: one, without a leading dimension, for the whole batch."""


open_draws: dict[int, ExampleDrawer] = {}
"""By thread what draws for the update that was begun last in it."""


def use_global_random_stream() -> None:
    """Let `ts.rand` and `ts.randn` draw from torch's stream within updates that are under way: in a copy of the process alone."""
    open_draws.clear()


def _current_draws() -> ExampleDrawer | None:
    """Return those of this thread's update, or in a backward, for which a device has a thread of its own, the newest."""
    if not open_draws:
        return None
    here = open_draws.get(get_ident())
    if here is None and torch._C._current_graph_task_id() != -1:
        here = next(reversed(list(open_draws.values())), None)
    return here


def keyed_draw(
    function: Any,
    size: tuple[Size, ...],
    dtype: torch.dtype | None,
    device: torch.device | str | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Draw with `torch.rand` or `torch.randn`, from the update's key where one is under way."""
    sizes: Any = size[0] if len(size) == 1 and not hasattr(size[0], "__index__") else size
    if open_draws and torch.compiler.is_compiling():
        raise OptionError(NOT_COMPILED)
    draws = _current_draws()
    if draws is None:
        drawn: Tensor = function(sizes, dtype=dtype, device=device, generator=generator)
        return drawn
    # drawn from a generator of the user's, the numbers would follow the calls and not the examples
    if generator is not None:
        raise OptionError(
            "ts.rand or ts.randn was given a generator inside of an update, where each row belongs to an example and is drawn "
            "from the update's key, so that the batch can be split. Leave generator= out; the run's seed decides the numbers."
        )
    shape = tuple(sizes)
    here = torch.empty(0, device=device).device
    kind = DrawSpec(function, shape[1:], dtype or torch.get_default_dtype(), here)
    return draws.rows(kind, shape[0] if shape else None)


NOT_COMPILED = (
    "ts.rand and ts.randn in a loss can't be compiled: each call has its own key. Draw outside of the compiled code, or use "
    "compile=False for this learner."
)
