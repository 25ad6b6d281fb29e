# SPDX-License-Identifier: Apache-2.0
"""What a child does that goes through an evaluation, with its examples cut or ordered in another way, and keeps what is printed."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from truestep.doctor.experiments.in_process_child import ChildLife, unseen
from truestep.doctor.experiments.load_replay import load_batches
from truestep.doctor.experiments.random_draw_detection import RandomDrawDetector
from truestep.doctor.forks.fork import ContinuingChild
from truestep.doctor.runtime.wrapping import WatchWrappers

EvaluationChangeKind = Literal["none", "cut", "reversed", "one example", "longer"]
LONGER_BY = 2  # so many times as many batches the loader says it has
Call = Callable[..., Any]


@dataclass(frozen=True)
class EvaluationChange:
    """One child of an experiment at an evaluation."""

    kind: EvaluationChangeKind = "none"
    repeated: bool = False


@dataclass(frozen=True)
class EvaluationPlan:
    """What is known of an evaluation before a child is forked."""

    iterator: Any  # hands over the first batch
    cut: Sequence[Sequence[int]]  # the examples of each batch
    other_size: int  # of batches that are cut in another way


@dataclass(frozen=True)
class _LoaderPass:
    """A pass over the evaluation's loader."""

    batches: Iterator[Any]
    told_before: int = 0  # so much was printed where it began


class EvaluationChild:
    """A child that goes through an evaluation to the next training batch, or to the script's end."""

    def __init__(self, going_on: ContinuingChild, plan: EvaluationPlan, change: EvaluationChange) -> None:
        self._plan = plan
        self._change = change
        self._life = ChildLife(going_on)
        self._cut = self._changed_batch_indexes()
        self._passes = {plan.iterator: _LoaderPass(load_batches(plan.iterator, self._cut))}
        self._num_left = len(self._cut)
        self._draws = RandomDrawDetector()
        self._has_gradients = torch.is_grad_enabled()  # where its loop begins

    def begin(self) -> Any:
        """Put in place what hands over the examples; return the first batch."""
        self._life.listen()
        self._install_wrappers()
        batch = self._next_batch(self._plan.iterator)
        self._draws.__enter__()  # for the rest of the child's life
        return batch

    def _changed_batch_indexes(self) -> list[list[int]]:
        cut = [list(each) for each in self._plan.cut]
        if self._change.kind == "reversed":
            # a smaller last batch stays the last one: what knows the sizes reckons with it there
            whole = [each for each in cut if len(each) == len(cut[0])]
            return [each[::-1] for each in (*reversed(whole), *cut[len(whole) :])]
        if self._change.kind == "one example":
            return [[cut[0][0]] * len(each) for each in cut]
        if self._change.kind == "cut":
            rows, size = [row for each in cut for row in each], self._plan.other_size
            return [rows[first : first + size] for first in range(0, len(rows), size)]
        return cut

    def _install_wrappers(self) -> None:
        wrappers = WatchWrappers()
        wrappers.method(_BaseDataLoaderIter, "__next__", self._wrap_loader_next)
        wrappers.method(DataLoader, "__iter__", self._wrap_loader_iter)
        wrappers.method(DataLoader, "__len__", self._wrap_loader_length)
        wrappers.method(torch.Tensor, "backward", self._end_on_backward)
        if (accelerate := sys.modules.get("accelerate.state")) is not None:
            # so many rows of the last batch it takes for copies, reckoned from the size of all others; one process makes none
            accelerate.GradientState.remainder = property(lambda _: 0)
        register_optimizer_step_pre_hook(lambda *_: self._life.end())

    def _wrap_loader_next(self, original: Call) -> Call:
        def __next__(iterator: Any) -> Any:  # noqa: N807
            if iterator is not self._plan.iterator:
                if torch.is_grad_enabled() and not (
                    self._is_evaluation_loader(iterator) and self._has_gradients
                ):
                    self._life.end()
                if not self._is_evaluation_loader(iterator):
                    return original(iterator)
            return self._next_batch(iterator)

        return __next__

    def _next_batch(self, iterator: Any) -> Any:
        """Return the next batch of a pass; what compares passes by place gets the same change in each."""
        is_first, seen = iterator is self._plan.iterator, self._life.seen
        if iterator not in self._passes:
            self._passes[iterator] = _LoaderPass(
                load_batches(iterator, self._cut), self._life.num_captured_characters
            )
        its = self._passes[iterator]
        try:
            batch = next(its.batches)
        except StopIteration:
            seen.is_whole, seen.draws = True, self._draws.has_draws
            # what was printed for single batches is another with each cut
            self._life.forget(since=its.told_before)
            raise
        self._num_left -= is_first
        if is_first:
            seen.num_batches = len(self._cut) - self._num_left
            seen.told_before_last = self._life.num_captured_characters
        seen.draws = self._draws.has_draws  # by then; the next pass over training data draws its order
        if is_first and not self._num_left and not self._life.num_captured_characters:
            seen.is_whole = True  # a loop that counts asks for no further one
        return batch

    def _wrap_loader_iter(self, original: Call) -> Call:
        def __iter__(loader: Any) -> Any:  # noqa: N807
            if loader.num_workers:
                if torch.is_grad_enabled():
                    self._life.end()
                vars(loader).update(num_workers=0, prefetch_factor=None)
            if not self._is_evaluation_loader(loader):
                return original(loader)
            with unseen():  # an iterator draws a seed for its workers
                return original(loader)

        return __iter__

    def _wrap_loader_length(self, original: Call) -> Call:
        def __len__(loader: Any) -> int:  # noqa: N807
            by = LONGER_BY if self._change.kind == "longer" else 1
            return by * len(self._cut) if self._is_evaluation_loader(loader) else original(loader)

        return __len__

    def _is_evaluation_loader(self, of: Any) -> bool:
        """Tell whether a loader, or an iterator of one, is the evaluation's."""
        return of._index_sampler is self._plan.iterator._index_sampler

    def _end_on_backward(self, _original: Call) -> Call:
        def backward(*_: Any, **__: Any) -> None:
            self._life.end()

        return backward
