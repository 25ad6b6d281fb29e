# SPDX-License-Identifier: Apache-2.0
"""What to write where `run.data` or `run.batches` is called otherwise than it is meant: what only the values tell."""

from collections.abc import Generator, Mapping
from typing import Any

from torch import Tensor

from truestep.core.call_site import loop_target_pair
from truestep.core.errors import OptionError
from truestep.core.nested_structures import batch_leaves

_NUMBERS = {"i", "j", "k", "n", "b", "it", "idx", "ind", "index", "num", "number", "count", "counter", "step", "iteration",
            "iter_num", "batch_idx", "batch_index", "batch_id", "batch_num", "batch_i", "i_batch", "ibatch", "_"}  # fmt: skip


def wrong_data_message(given: tuple[object, ...]) -> str | None:
    """Say what `run.data` takes where several things were given by place, and none is a size."""
    if len(given) < 2 or any(isinstance(each, int) for each in given):
        return None
    names = ", ".join("xyzuvw"[: len(given)])
    return (
        f"run.data was given {len(given)} things by place, and takes one, whose parts are read together. Put them into a "
        f"tuple: run.data(({names}), batch_size=64); all else goes by name."
    )


def check_unpacked_batches(batches: Generator[Any, None, str]) -> Generator[Any, None, str]:
    """Return the batches of a pass; where the loop that asks for them takes each apart into two, the first is looked at.

    In `for i, batch in run.batches(source)` a pair would be taken apart without a word; a tensor and a dict are no pair.
    """
    names = loop_target_pair()
    return batches if names is None else _check_first_batch(batches, names)


def _check_first_batch(
    batches: Generator[Any, None, str], names: tuple[str, str]
) -> Generator[Any, None, str]:
    for batch in batches:
        if names[0] in _NUMBERS:
            _refuse_pair_unpacked_as_index(batch, names)
        _refuse_batch_not_a_pair(batch, names)
        yield batch
        break
    return (yield from batches)


def _refuse_pair_unpacked_as_index(batch: Any, names: tuple[str, str]) -> None:
    first, second = names
    if isinstance(batch, tuple | list) and len(batch) == 2 and _is_integer_vector(batch[0]):
        return  # a data set may give each example its number
    leaves = [batch] if isinstance(batch, Tensor) else [leaf for _, leaf in batch_leaves(batch)]
    raise OptionError(
        f"for {first}, {second} in run.batches(source) takes each batch apart ({', '.join(map(_kind, leaves))}): {first!r} would "
        f"be its first part, and no number. Write for {second} in run.batches(source), for {first}, {second} in "
        "enumerate(run.batches(source)) to count them, or use run.step, which counts the batches of the whole run."
    )


def _refuse_batch_not_a_pair(batch: Any, names: tuple[str, str]) -> None:
    first, second = names
    if isinstance(batch, Mapping):
        keys = list(batch) or ["name"]
        raise OptionError(
            f"for {first}, {second} in run.batches(source) takes each batch apart, and it is a dict, so that would give names of "
            f"its parts ({', '.join(map(repr, keys[:6]))}). Write for batch in run.batches(source), and take it by name: "
            f"{first} = batch[{keys[0]!r}]."
        )
    if isinstance(batch, Tensor) and (batch.ndim == 0 or len(batch) != 2):  # two of something may be meant
        raise OptionError(
            f"for {first}, {second} in run.batches(source) takes each batch apart, and it is one tensor of shape "
            f"{tuple(batch.shape)}, whose parts are its examples: run.data was given one tensor. Write for {first} in "
            f"run.batches(source), or give both: run.data(({first}, {second}), batch_size={len(batch) if batch.ndim else 64})."
        )


def _is_integer_vector(part: Any) -> bool:
    return isinstance(part, Tensor) and part.ndim == 1 and not part.is_floating_point()


def _kind(leaf: Any) -> str:
    return str(tuple(leaf.shape)) if isinstance(leaf, Tensor) else type(leaf).__name__
