# SPDX-License-Identifier: Apache-2.0
"""A batch without rows, as a message to a rank that has none of its own to take the structure from."""

import dataclasses
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from truestep.core import nested_structures
from truestep.core.errors import BatchError
from truestep.engine.batches import BatchOrigin, batch_rows, map_batch_tensors

Outline = dict[str, Any]


def make_empty_batch(batch: Any, making: BatchOrigin) -> Any:
    """Return a batch like this one that has no examples, and keeps none in memory."""
    return map_batch_tensors(lambda tensor: tensor.clone(), batch_rows(batch, 0, 0, making))


def describe_batch_types(batch: Any, *, in_columns: bool, with_sizes: bool = False) -> str:
    """Return types and numbers of dimensions (or the sizes beside the rows) of what a batch holds.

    Lists are columns, or else rows: how many there are, and how large each is, is then left out.
    """
    if isinstance(batch, (Tensor, np.ndarray)):
        dtype = str(batch.dtype).removeprefix("torch.")
        sizes = ", ".join(["rows", *map(str, batch.shape[1:])])
        return f"{dtype} ({sizes})" if with_sizes else f"{batch.ndim}-d {dtype}"
    parts = nested_structures.batch_children_by_name(batch)
    if parts is None:
        return type(batch).__name__
    are_rows = isinstance(batch, list) and not in_columns
    forms = [
        describe_batch_types(part, in_columns=in_columns, with_sizes=with_sizes and not are_rows)
        for _, part in parts
    ]
    if isinstance(batch, Mapping):
        keys = [step[1:-1] for step, _ in parts]
        return f"{{{', '.join(f'{key}: {form}' for key, form in zip(keys, forms, strict=True))}}}"
    return f"[{', '.join(dict.fromkeys(forms))}]" if are_rows else f"({', '.join(forms)})"


def no_rows_error(why: str) -> BatchError:
    """Return the error for batches that a rank can't have without rows."""
    return BatchError(
        f"A rank has no rows left while others have, and a batch without rows can't be made of these: {why}. Make batches of "
        "tensors and plain values in collate=, or write drop_last=True, which ends the pass when the first rank has none left."
    )


def outline_of_batch(batch: Any) -> Outline:
    """Return a batch as tensors and plain values in dicts and lists; classes by the names that they have in each rank."""
    if isinstance(batch, Tensor) or batch is None or type(batch) in (bool, int, float, str):
        return {"leaf": batch}
    parts = nested_structures.batch_children(batch)
    kind = type(batch)
    if parts is None or "<locals>" in kind.__qualname__:
        raise no_rows_error(f"there is a {kind.__name__} in them")
    outlines = [outline_of_batch(part) for _, part in parts]
    named = vars(batch) if isinstance(batch, SimpleNamespace) else batch
    keys = [*named] if isinstance(named, Mapping) else None
    return {"class": [kind.__module__, kind.__qualname__], "keys": keys, "parts": outlines}


def batch_from_outline(outline: Outline) -> Any:
    """Return the batch that an outline was made of."""
    if "leaf" in outline:
        return outline["leaf"]
    kind = _imported_class(*outline["class"])
    parts = [batch_from_outline(part) for part in outline["parts"]]
    if outline["keys"] is not None:
        named = dict(zip(outline["keys"], parts, strict=True))
        return kind(**named) if issubclass(kind, SimpleNamespace) else kind(named)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*parts)
    if issubclass(kind, (tuple, list)):
        return kind(parts)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    return kind(**dict(zip(names, parts, strict=True)))


def _imported_class(module: str, name: str) -> Any:
    """Return a class that this program, which is the same on all ranks, has imported already."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise BatchError(
            f"This rank has no rows of a batch, whose class {module}.{name} is not known here. Import it on all ranks."
        )
    return found
