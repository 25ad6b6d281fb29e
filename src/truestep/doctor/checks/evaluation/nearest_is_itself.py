# SPDX-License-Identifier: Apache-2.0
"""Nearest neighbours among which is the example itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG
from truestep.doctor.library.operations import operations
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.finding import Place
    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

LEAST = 8  # examples
MOST = 16  # choices that are followed
CHOICES = operations(numbers="chosen index")


class NearestIsItself(Watcher):
    """Each example's nearest neighbour is the example itself, and its label is compared with its own.

    Why: the first neighbour is always right, so that the figure is near 1 for any model.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        with torch.no_grad():
            inputs, labels = torch.randn(32, 4), torch.arange(32) % 3
            outputs = net(inputs)
            nearest = torch.cdist(outputs, outputs).topk(2, largest=False).indices  # here
            recall = (labels[nearest] == labels[:, None]).any(1).float().mean()

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        with torch.no_grad():
            inputs, labels = torch.randn(32, 4), torch.arange(32) % 3
            outputs = net(inputs)
            nearest = torch.cdist(outputs, outputs).topk(3, largest=False).indices[:, 1:]
            recall = (labels[nearest] == labels[:, None]).any(1).float().mean()

    Fix: leave the example out: distances.fill_diagonal_(float("inf")), or topk(k + 1) without the first.
    """

    code = "EVAL046"

    def __init__(self) -> None:
        self.choices: list[_Choice] = []
        self.made_of: dict[WatchedOrigin, _Choice] = {}  # what the values of this step were chosen by

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Find a choice by which every row gets its own number, and follow it to a comparison."""
        room = given and len(self.choices) < MOST
        if origin.operation in CHOICES and room and (chosen := _chosen(result)) is not None:
            if _chooses_itself(given[0], chosen):
                self.choices.append(_Choice(origin.place, len(chosen)))
                self.made_of[origin] = self.choices[-1]
                return
        choices = [choice for each in origin.before if (choice := self.made_of.get(each)) is not None]
        for choice in choices:
            self.made_of[origin] = choice
            choice.is_left_out = choice.is_left_out or _leaves_first_out(origin.operation, given, result)
            choice.is_compared = choice.is_compared or origin.operation in ("eq", "ne")
        yield from ()

    def on_stepped(self, history: WatchHistory, record: object, place: Place) -> None:
        """The values of a step are no more followed."""
        self.made_of.clear()

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report the first choice that was compared with its own rows among them."""
        for each in self.choices:
            if each.is_compared and not each.is_left_out:
                text = f"The nearest neighbour of each of the {each.num_rows} examples is the example itself."
                yield Observation(each.place, text, BUG, {"number": each.num_rows})


@dataclass(eq=False)
class _Choice:
    """One choice of neighbours, and what became of it."""

    place: Place
    num_rows: int
    is_left_out: bool = False  # the first neighbour, later
    is_compared: bool = False


def _chosen(result: Any) -> Tensor | None:
    """Return the first choice of each row."""
    found = result[1] if isinstance(result, tuple) and len(result) == 2 else result
    if (
        not hasattr(found, "dim")
        or found.is_floating_point()
        or found.dim() not in (1, 2)
        or not found.numel()
    ):
        return None
    first: Tensor = found if found.dim() == 1 else found[:, 0]
    return first if len(first) >= LEAST else None


def _chooses_itself(matrix: Tensor, chosen: Tensor) -> bool:
    """Tell a square of examples against themselves: the same from both sides, where each row has chosen its own."""
    import torch

    count = len(chosen)
    if tuple(matrix.shape) != (count, count) or not matrix.is_floating_point():
        return False
    if not torch.equal(chosen, torch.arange(count, device=chosen.device)):
        return False
    return torch.allclose(matrix, matrix.T, rtol=1e-3, atol=1e-4) and bool((matrix != matrix[0, 0]).any())


def _leaves_first_out(operation: str, given: list[Tensor], result: Any) -> bool:
    """Tell `nearest[:, 1:]`; in NumPy nobody sees it."""
    if operation in ("numpy", "tolist"):
        return True
    if operation not in ("__getitem__", "narrow", "select") or not hasattr(result, "untyped_storage"):
        return False
    whole = given[0]
    is_view = result.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    return bool(is_view and result.storage_offset() > whole.storage_offset())
