# SPDX-License-Identifier: Apache-2.0
"""`for i, batch in run.batches(source)`: a batch that is a pair would be taken apart without a word."""

import dis
import sys
from collections.abc import Generator
from functools import cache
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

from truestep.core.errors import OptionError
from truestep.core.frames import is_library_file
from truestep.core.structure import batch_leaves

_NUMBERS = {"i", "j", "k", "n", "b", "it", "idx", "ind", "index", "num", "number", "count", "counter", "step", "iteration",
            "iter_num", "batch_idx", "batch_index", "batch_id", "batch_num", "batch_i", "i_batch", "ibatch", "_"}  # fmt: skip


def refuse_misread_batches(batches: Generator[Any]) -> Generator[Any]:
    """Return the batches of a pass; where the loop that asks for them takes a number and a batch, its first batch is looked at."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library_file(frame.f_code.co_filename):
        frame = frame.f_back
    names = None if frame is None else _targets(frame.f_code, frame.f_lasti)
    return batches if names is None or names[0] not in _NUMBERS else _looked_at(batches, names)


def _looked_at(batches: Generator[Any], names: tuple[str, str]) -> Generator[Any]:
    for batch in batches:
        _refuse_pair(batch, names)
        yield batch
        break
    yield from batches


def _refuse_pair(batch: Any, names: tuple[str, str]) -> None:
    first, second = names
    if isinstance(batch, tuple | list) and len(batch) == 2 and _is_number_of_each(batch[0]):
        return  # a data set may give each example its number
    kinds = (
        ", ".join(_kind(leaf) for _, leaf in batch_leaves(batch))
        if not isinstance(batch, Tensor)
        else _kind(batch)
    )
    raise OptionError(
        f"for {first}, {second} in run.batches(source) takes each batch apart ({kinds}): {first!r} would be its first part, and no "
        f"number. Write for {second} in run.batches(source), for {first}, {second} in enumerate(run.batches(source)) to count "
        "them, or use run.step, which counts the batches of the whole run."
    )


def _is_number_of_each(part: Any) -> bool:
    return isinstance(part, Tensor) and part.ndim == 1 and not part.is_floating_point()


def _kind(leaf: Any) -> str:
    return str(tuple(leaf.shape)) if isinstance(leaf, Tensor) else type(leaf).__name__


@cache
def _targets(code: CodeType, place: int) -> tuple[str, str] | None:
    """Return the two names that a `for` takes the items of the running call apart into; None where it is no such loop."""
    after = [each for each in dis.get_instructions(code) if each.offset > place][:8]
    following = [each for each in after if each.opname not in ("CACHE", "NOP")]
    names = [each.opname for each in following]
    if names[:3] != ["GET_ITER", "FOR_ITER", "UNPACK_SEQUENCE"] or following[2].argval != 2:
        return None
    first, second = following[3:5]
    if isinstance(first.argval, tuple):  # two in one, from Python 3.13 on
        return first.argval
    if not first.opname.startswith("STORE_"):
        return None
    return str(first.argval), str(second.argval) if second.opname.startswith("STORE_") else "batch"
