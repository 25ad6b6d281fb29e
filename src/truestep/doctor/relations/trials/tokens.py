# SPDX-License-Identifier: Apache-2.0
"""Relations of sequences: padding that a mask names changes nothing, and no token sees later ones where that is promised."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truestep.doctor.relations.examples import Examples
from truestep.doctor.relations.trials.trial import TrialOutcome, Trials
from truestep.doctor.relations.verdict import Verdict

_SEEN = (
    "the losses of earlier tokens change with later ones: the model sees what it is to predict. Give attention a causal mask "
    "(is_causal=True), and pad convolutions on the left"
)
_FEWEST_PADDED = 3  # positions, in which one value is no chance
LEAST_CHANGE = 0.01  # of a gradient, by longer padding: a convolution sees its edge
MORE_POSITIONS = 2  # positions by which padding is made longer
_TARGETS = re.compile(r"label|target|\by\b", re.I)
_MASKS = re.compile(r"mask|pad", re.I)
_LENGTHS = re.compile(r"len", re.I)
_WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8, torch.bool})


class Sequences(NamedTuple):
    """Which items of a batch run along a sequence, and which of their positions are padding."""

    items: tuple[str, ...]
    mask: str | None
    padding: Tensor
    """Of shape (examples, positions): whether each is padding."""
    is_last: bool
    """Whether padding stands behind the sequence, in every example."""


def find_padding(examples: Examples) -> Sequences | str:
    """Return the padding of a batch, or why none is known."""
    leaves = {name: examples.leaves[name] for name in examples.items if examples.axes[name] == 0}
    tensors = {name: each for name, each in leaves.items() if isinstance(each, Tensor)}
    for name, mask in tensors.items():
        if mask.ndim == 2 and _is_mask(name, mask):
            padding = padding_in_mask(name, mask)
            if padding is not None:
                return _sequences_or_reason(tensors, name, padding)
    for name, lengths in tensors.items():
        longest = max((each.shape[1] for each in tensors.values() if each.ndim > 1), default=0)
        if _LENGTHS.search(name) and lengths.ndim == 1 and not lengths.is_floating_point():
            positions = torch.arange(longest, device=lengths.device)
            return _sequences_or_reason(tensors, None, positions >= lengths.unsqueeze(1))
    return "no item of the batch is known as a mask or as lengths"


def find_unmasked_padding(examples: Examples) -> Sequences | str:
    """Return the padding that no mask tells, or why none is known: behind the sequences stands one value, in each item.

    How long they are is told by numbers of the batch, or by whole numbers that occur behind the sequences alone.
    """
    leaves = {name: examples.leaves[name] for name in examples.items if examples.axes[name] == 0}
    tensors = {name: each for name, each in leaves.items() if isinstance(each, Tensor)}
    for padding in (each for leaf in leaves.values() for each in _padding_candidates(leaf, tensors)):
        found = _sequences_or_reason(tensors, None, padding)
        if isinstance(found, Sequences) and all(
            _is_padded_with_one_value(tensors[each], padding) for each in found.items
        ):
            return found
    return "nothing tells where the sequences of the batch end"


def _padding_candidates(leaf: Any, tensors: dict[str, Tensor]) -> Iterator[Tensor]:
    """Yield what may be padding by lengths, or by a whole number that stands behind the sequences and nowhere else."""
    if isinstance(leaf, (list, tuple)) and all(type(each) is int for each in leaf):
        leaf = torch.tensor(leaf)
    if not isinstance(leaf, Tensor) or leaf.dtype not in _WHOLE or not leaf.numel():
        return
    sizes = {each.shape[1] for each in tensors.values() if each.ndim > 1}
    if leaf.ndim == 1 and int(leaf.max()) in sizes and 0 < int(leaf.min()) < int(leaf.max()):
        yield torch.arange(int(leaf.max()), device=leaf.device) >= leaf.unsqueeze(1)
    for value in sorted(set(leaf[:, -1].tolist())) if leaf.ndim == 2 else ():
        here = leaf == value
        behind = here.flip(1).long().cummin(1).values.flip(1).bool()
        runs = behind.sum(1)
        # by chance one row may end with the same number twice
        some = int((runs > 1).sum()) > 1 and int(runs.max()) < leaf.shape[1] and int(runs.min()) == 0
        if some and bool((here == behind).all()):
            yield behind


def _is_padded_with_one_value(leaf: Tensor, padding: Tensor) -> bool:
    padded = leaf[padding.to(leaf.device)]
    return len(padded) >= _FEWEST_PADDED and bool((padded == padded[:1]).all())


def _is_mask(name: str, mask: Tensor) -> bool:
    if mask.dtype is torch.bool:
        return True
    return bool(_MASKS.search(name)) and bool(((mask == 0) | (mask == 1)).all())


def padding_in_mask(name: str, mask: Tensor) -> Tensor | None:
    """Return what is padding: the mask's other value than that of the sequences' side, which all examples share."""
    real = mask.bool()
    first, last = real[:, 0], real[:, -1]
    if bool((first == first[0]).all()) and not bool((last == first[0]).all()):
        return real != first[0]
    if bool((last == last[0]).all()) and not bool((first == last[0]).all()):
        return real != last[0]
    if re.search(r"pad", name, re.I) and mask.dtype is torch.bool:
        return real
    return ~real if re.search(r"attention", name, re.I) else None


def _sequences_or_reason(tensors: dict[str, Tensor], mask: str | None, padding: Tensor) -> Sequences | str:
    size = padding.shape[1]
    items = tuple(name for name, each in tensors.items() if each.ndim > 1 and each.shape[1] == size)
    if not set(items) - {mask}:
        return "no item of the batch has the mask's positions"
    if not bool(padding.any()):
        return "the batch holds no padding"
    behind = padding.long().cummax(1).values.bool()
    return Sequences(items, mask, padding, bool((behind == padding).all()))


def padding(trials: Trials) -> Verdict:
    """Other values at padded positions, and more of these, change nothing."""
    found = find_padding(trials.examples)
    if isinstance(found, str):
        return _padding_without_mask(trials, found)
    count = trials.examples.count
    items = tuple(name for name in found.items if name != found.mask and not _TARGETS.search(name))
    outcome = trials.gradients(with_other_padding(trials.examples, items), count)
    verdict = _padding_verdict(trials, outcome, "other values there")
    if verdict.outcome != "held" or not found.is_last:
        return verdict
    longer = trials.attempt(_with_more_padding(trials.examples, found), count)
    # where it fails it takes sequences of one length
    return verdict if isinstance(longer, str) else _padding_verdict(trials, longer, "more of them")


def _padding_without_mask(trials: Trials, why: str) -> Verdict:
    """More padding behind sequences whose ends the batch tells without a mask changes next to nothing, or is asked after."""
    found = find_unmasked_padding(trials.examples)
    if isinstance(found, str):
        return Verdict("padding", "not tried", f"{why}, and {found}")
    longer = trials.attempt(_with_more_padding(trials.examples, found), trials.examples.count)
    if isinstance(longer, str) or trials.draws:
        why = "it draws random numbers, others for" if trials.draws else "it takes no"
        return Verdict("padding", "not tried", f"no mask tells the padding, and {why} longer sequences")
    verdict = _padding_verdict(trials, longer, "more of them")
    is_small = verdict.outcome == "held" or (verdict.found or 0.0) <= LEAST_CHANGE
    return replace(verdict, outcome="held" if is_small else "question", why="" if is_small else verdict.why)


def _padding_verdict(trials: Trials, outcome: TrialOutcome, given: str) -> Verdict:
    compared = trials.compare(outcome.gradients, trials.whole.gradients)
    difference = max(
        compared.difference, abs(outcome.value - trials.whole.value) / (abs(trials.whole.value) or 1.0)
    )
    values = trials.whole.values
    # a mean over a table of tokens counts the padded ones, and is scaled by their number alone
    held = difference <= trials.tolerance or (values is not None and values.ndim > 1 and compared.factor)
    why = (
        f"padded positions reach the loss: {given} change it. Give the mask to attention, pool over real positions alone, and "
        "divide the loss by their number"
    )
    return Verdict(
        "padding",
        "held" if held else "broken",
        "" if held else why,
        expected=0.0,
        found=difference,
        unit=f"relative change by {given}",
    )


def with_other_padding(examples: Examples, names: tuple[str, ...]) -> Any:
    """Return the batch with the values of real positions at the padded ones of some items."""
    found = find_padding(examples)
    assert isinstance(found, Sequences)
    padded = found.padding

    def pad_with_real_value(_name: str, leaf: Tensor) -> Tensor:
        start = (~padded).long().argmax(1)
        rows = torch.arange(len(leaf), device=leaf.device)
        value = leaf[rows, start.to(leaf.device)].unsqueeze(1).expand_as(leaf)
        value = value * 1.5 + 0.5 if leaf.is_floating_point() else value
        where = padded.to(leaf.device).reshape(*padded.shape, *[1] * (leaf.ndim - 2))
        return torch.where(where, value, leaf)

    return _alter_items(examples, names, pad_with_real_value)


def with_longer_padding(examples: Examples) -> Any:
    """Return the batch with more of the padding that no mask tells."""
    found = find_unmasked_padding(examples)
    assert isinstance(found, Sequences)
    return _with_more_padding(examples, found)


def _with_more_padding(examples: Examples, found: Sequences) -> Any:
    """Return the batch with more positions behind, that hold what a padded one holds."""
    row, position = (int(each[0]) for each in found.padding.nonzero(as_tuple=True))

    def extend_padding(_name: str, leaf: Tensor) -> Tensor:
        value = leaf[row, position].expand(leaf.shape[0], MORE_POSITIONS, *leaf.shape[2:])
        return torch.cat([leaf, value], 1)

    return _alter_items(examples, found.items, extend_padding)


def _alter_items(examples: Examples, names: tuple[str, ...], change: Callable[[str, Tensor], Tensor]) -> Any:
    return examples.with_leaves(
        lambda name: change(name, examples.copy_of(name)) if name in names else examples.copy_of(name)
    )


def later(trials: Trials) -> Verdict:
    """Later tokens change no earlier token's loss."""
    values = trials.whole.values
    if values is None or values.ndim != 2 or values.shape[1] < 3:
        why = "the loss function gives no value for each token: return them, of shape (batch, tokens)"
        return Verdict("later", "not tried", why)
    items = _token_items(trials.examples, values.shape[1])
    if not items or trials.examples.count < 2:
        return Verdict("later", "not tried", "no item of the batch has the tokens' positions")
    cut = values.shape[1] // 2 + 1
    batch = _alter_items(
        trials.examples, items, lambda _, leaf: torch.cat([leaf[:, :cut], leaf.roll(1, 0)[:, cut:]], 1)
    )
    outcome = trials.gradients(batch, trials.examples.count)
    assert outcome.values is not None
    before, after = values[:, : cut - 1].double(), outcome.values[:, : cut - 1].double()
    moved = float((before - after).abs().max() / before.abs().max().clamp(min=1e-12))
    held = moved <= trials.tolerance
    unit = "largest change of an earlier token's loss, of the largest loss"
    return Verdict(
        "later", "held" if held else "broken", "" if held else _SEEN, expected=0.0, found=moved, unit=unit
    )


def _token_items(examples: Examples, size: int) -> tuple[str, ...]:
    """Return the items that run along the positions of the losses, but for masks; labels may be shifted by one."""
    leaves = {name: examples.leaves[name] for name in examples.items if not _MASKS.search(name)}
    return tuple(
        name
        for name, each in leaves.items()
        if isinstance(each, Tensor) and each.ndim > 1 and each.shape[1] in (size, size + 1)
        if each.dtype is not torch.bool
    )
