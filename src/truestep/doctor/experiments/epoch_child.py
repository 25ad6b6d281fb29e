# SPDX-License-Identifier: Apache-2.0
"""What a child does that goes through an epoch of a few batches: it notes what each gave, and what is printed behind."""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from truestep.doctor.experiments.in_process_child import ChildLife
from truestep.doctor.experiments.load_replay import load_batches
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.forks.fork import ContinuingChild
from truestep.doctor.relations.examples import Examples
from truestep.doctor.runtime.user_code_line import path_in_finding, watched_user_place
from truestep.doctor.runtime.wrapping import WatchWrappers

NUM_BATCHES, NUM_BATCHES_WITHIN = 5, 24  # behind an epoch; within one, where scripts print at each tenth
_MOST_BEHIND = 100
_MOST_VALUES = 400
_DIVIDES = frozenset({"div", "div_", "__truediv__", "true_divide", "__itruediv__"})
_READS = frozenset({"item", "__float__", "detach"})
Call = Callable[..., Any]


@dataclass(frozen=True)
class EpochPlan:
    """What is known of an epoch before a child is forked."""

    iterator: Any  # has handed over its first batch
    examples: Examples  # of it
    sizes: Sequence[int]  # of the batches, the first one with them

    def cut(self, count: int) -> "EpochPlan":
        """Return the plan of an epoch that ends behind so many batches."""
        return replace(self, sizes=self.sizes[:count])


class EpochChild:
    """A child that goes through a few batches, and on to the next epoch or the script's end."""

    def __init__(self, going_on: ContinuingChild, plan: EpochPlan, *, doubled: bool) -> None:
        self._plan = plan
        self._doubled = doubled
        self._life = ChildLife(going_on, self._complete_outcome)
        self._values = ReadValueRecorder()
        self._further = self._fetch_batches()
        self._num_behind = 0  # batches of other loaders

    def begin(self) -> Any:
        """Put in place what notes values; return the first batch."""
        self._life.listen()
        wrappers = WatchWrappers()
        wrappers.method(_BaseDataLoaderIter, "__next__", self._wrap_loader_next)
        wrappers.method(DataLoader, "__len__", self._wrap_loader_length)
        self._values.__enter__()  # type: ignore[no-untyped-call] # for the rest of the child's life
        return self._plan.examples.twice() if self._doubled else self._plan.examples.batch

    def _fetch_batches(self) -> Iterator[Any]:
        # asked for here alone: a sampler draws, and the script's own must not
        cuts = [
            list(each) for each in islice(iter(self._plan.iterator._index_sampler), len(self._plan.sizes))
        ]
        if [*map(len, cuts)] != [*self._plan.sizes]:
            self._life.end(failure="the loader cuts batches of other sizes than it says")
        yield from load_batches(self._plan.iterator, cuts[1:])

    def _wrap_loader_next(self, original: Call) -> Call:
        def __next__(iterator: Any) -> Any:  # noqa: N807
            if not self._life.seen.is_whole and iterator is not self._plan.iterator:
                self._leave_epoch(iterator)
            if self._life.seen.is_whole:
                return self._next_evaluation_batch(original, iterator)
            self._end_batch()
            return self._next_batch()

        return __next__

    def _leave_epoch(self, iterator: Any) -> None:
        """Note that another pass begins: behind the last batch, since who counts them never asks for one too many."""
        if self._values.num_batches + 1 < len(self._plan.sizes):
            is_own = iterator._dataset is self._plan.iterator._dataset
            self._life.end(failure=None if is_own else "several loaders hand over batches in an epoch")
        self._values.end_batch()
        self._life.seen.is_whole = True

    def _next_evaluation_batch(self, original: Call, iterator: Any) -> Any:
        """Let an evaluation come behind the epoch, since many scripts print both figures on one line."""
        is_own = iterator._dataset is self._plan.iterator._dataset
        self._num_behind += 1
        if is_own or self._num_behind > _MOST_BEHIND or isinstance(iterator, _MultiProcessingDataLoaderIter):
            self._life.end()
        return original(iterator)

    def _end_batch(self) -> None:
        self._values.end_batch()
        if not self._life.seen.is_whole:
            self._life.seen.printed_within.append(self._life.captured_output())
            self._life.forget()  # what was printed for single batches

    def _next_batch(self) -> Any:
        try:
            return next(self._further)
        except StopIteration:
            self._life.seen.is_whole = True
            raise

    def _wrap_loader_length(self, original: Call) -> Call:
        def __len__(loader: Any) -> int:  # noqa: N807
            own = loader._index_sampler is self._plan.iterator._index_sampler
            return len(self._plan.sizes) if own else original(loader)

        return __len__

    def _complete_outcome(self, seen: ChildOutcome) -> None:
        self._values.end_batch()
        seen.values = self._values.series(len(self._plan.sizes))
        seen.values_within = self._values.series_with_gaps(len(self._plan.sizes))
        seen.divided = self._values.divided


class ReadValueRecorder(TorchFunctionMode):
    """Notes the numbers that the script reads from tensors, by the line and the batch.

    Attributes:
        divided: what those of a line were divided by just before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._of_batch: dict[str, list[float]] = {}
        self._batches: list[dict[str, list[float]]] = []
        self.divided: dict[str, float] = {}
        self._quotients: dict[int, tuple[weakref.ref[Tensor], float]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_value = isinstance(result, (int, float)) or (isinstance(result, Tensor) and not result.ndim)
        name = getattr(func, "__name__", "")
        if name in _DIVIDES and is_value and len(args) == 2 and isinstance(args[1], (int, float)):
            self._quotients[id(result)] = (weakref.ref(result), float(args[1]))
        if name in _READS and is_value:
            place = watched_user_place()
            source = f"{path_in_finding(place.path)}:{place.line}"
            self.note(source, float(result))
            known = self._quotients.get(id(args[0]))
            if known is not None and known[0]() is args[0]:
                self.divided[source] = known[1]
        return result

    def note(self, source: str, value: float) -> None:
        """Note a value."""
        values = self._of_batch.setdefault(source, [])
        if len(values) < _MOST_VALUES:
            values.append(value)

    @property
    def num_batches(self) -> int:
        """How many batches have ended."""
        return len(self._batches)

    def end_batch(self) -> None:
        """What follows is of another batch."""
        self._batches.append(self._of_batch)
        self._of_batch = {}

    def series_with_gaps(self, count: int) -> dict[str, list[float]]:
        """Return the values that were read at a line at most once in each of so many batches; NaN where none was."""
        batches = self._batches[:count]
        sources = {source: None for each in batches for source in each}
        return {
            source: [each.get(source, [math.nan])[0] for each in batches]
            for source in sources
            if all(len(each.get(source, ())) <= 1 for each in batches)
        }

    def series(self, count: int) -> dict[str, list[float]]:
        """Return the values that each of so many batches gave once at a line."""
        known = self.series_with_gaps(count) if len(self._batches) >= count else {}
        return {source: each for source, each in known.items() if not any(map(math.isnan, each))}
