# SPDX-License-Identifier: Apache-2.0
"""Which targets of a loss stand where a mask that the model was given, or an embedding's padding_idx, says padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from truestep.doctor.relations.trials.tokens import padding_in_mask
from truestep.doctor.runtime.history import ForwardCall, LossCall
from truestep.doctor.runtime.sequence_leakage import is_symbol_batch, target_shift

if TYPE_CHECKING:
    from truestep.doctor.finding import Place


class PaddedTargets(NamedTuple):
    """How many targets are padding, of how many that count, and what stands there; by which mask."""

    num_padded: int
    num_targets: int
    value: int
    mask: str


class AskedTargets(NamedTuple):
    """The targets of a loss that counts each of them but those of one value."""

    targets: Tensor
    ignored: int
    place: Place


class GivenSequences(NamedTuple):
    """What a model was given along sequences: symbols, labels among them, and masks by their names."""

    symbols: list[Tensor]
    masks: list[tuple[str, Tensor]]
    padding_index: int | None = None
    """The symbol that an embedding takes for padding, where that and no mask says it."""


def asked_targets(loss: LossCall) -> AskedTargets | None:
    """Return what a cross entropy asks for that makes one number of all targets; None for any other loss."""
    is_asked = loss.name in ("cross_entropy", "nll_loss") and not loss.target.is_floating_point()
    if (
        not is_asked
        or loss.options.get("reduction", "mean") == "none"
        or loss.options.get("weight") is not None
    ):
        return None
    return AskedTargets(loss.target.detach(), loss.options.get("ignore_index", -100), loss.place)


def given_sequences(forward: ForwardCall) -> list[GivenSequences]:
    """Return what a model was given along sequences, without its output, which would be kept alive."""
    given = [*enumerate(forward.args), *forward.kwargs.items()]
    tables = [
        (str(key), each.detach()) for key, each in given if isinstance(each, Tensor) and each.dim() == 2
    ]
    masks = [(key, each) for key, each in tables if _may_be_mask(key, each)]
    known = {key for key, _ in masks}
    symbols = [each for key, each in tables if key not in known and is_symbol_batch(each)]
    if masks:
        return [GivenSequences(symbols, masks)]
    embeddings = (
        [each for each in forward.module.modules() if isinstance(each, nn.Embedding)] if symbols else []
    )
    indices = {each.padding_idx for each in embeddings if each.padding_idx is not None}
    # each with its own padding: of a translation both sides have the same index
    return [GivenSequences([each], [], indices.copy().pop()) for each in symbols] if len(indices) == 1 else []


def padded_targets(given: GivenSequences, asked: AskedTargets) -> PaddedTargets | None:
    """Return the targets that are padding and count; None where there are none, or where a mask may mean something else.

    All padding has one value as its target, and all of it counts: the first place behind a text may be asked for on purpose,
    and a prompt that a mask leaves out has targets of many values.
    """
    for name, padding in _end_padding_masks(given):
        targets, places = _aligned_targets(given, asked, padding)
        if targets is None:
            continue
        counted, values = targets != asked.ignored, targets[places]
        is_several = bool((places.sum(1) > 1).any())
        if is_several and bool(counted[places].all()) and bool((values == values[0]).all()):
            return PaddedTargets(len(values), int(counted.sum()), int(values[0]), name)
    return None


def _may_be_mask(name: str, value: Tensor) -> bool:
    is_named = "mask" in name or "pad" in name
    return value.dtype is torch.bool or (is_named and bool(((value == 0) | (value == 1)).all()))


def _end_padding_masks(given: GivenSequences) -> Iterator[tuple[str, Tensor]]:
    """Yield the masks that say padding at one end of sequences, with where they do."""
    if (index := given.padding_index) is not None:
        for symbols in given.symbols:
            named = symbols.eq(index)
            if bool(named.any()) and _is_at_one_end(named):
                yield f"padding_idx={index}", named
    for name, mask in given.masks:
        padding = padding_in_mask(name, mask)
        if padding is not None and bool(padding.any()) and _is_at_one_end(padding):
            yield ("a mask" if name.isdigit() else repr(name)), padding


def _is_at_one_end(padding: Tensor) -> bool:
    ends = padding, padding.flip(1)
    return any(torch.equal(each.long().cummax(1).values.bool(), each) for each in ends)


def _aligned_targets(
    given: GivenSequences, asked: AskedTargets, padding: Tensor
) -> tuple[Tensor | None, Tensor]:
    """Return the targets by example and place, with which are padding: as far ahead as the symbols tell."""
    target, (rows, size) = asked.targets, padding.shape
    for symbols in given.symbols:
        ahead = target_shift(symbols, 1, target, asked.ignored) if symbols.shape == padding.shape else None
        if ahead is not None:
            return target.reshape(rows, -1)[:, : size - ahead], padding[:, ahead:]
    if target.shape in (padding.shape, (rows * size,)):  # tags, which the model is not given
        return target.reshape(rows, size), padding
    return None, padding
