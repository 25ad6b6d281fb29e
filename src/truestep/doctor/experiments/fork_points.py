# SPDX-License-Identifier: Apache-2.0
"""The course of a training as far as experiments ask for it: which loader's batches lead to steps, and where one may fork."""

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from truestep.doctor.experiments.skip_reasons import OF_A_RUN, TAKEN_BESIDE
from truestep.doctor.experiments.step_child import AMID
from truestep.instrument.step_listeners import UNDER_WAY

MOST_EVALUATIONS = 2
STEP_PLACES = (3, 50)  # about so many batches of a loader have been handed over
_STEP_ALONE, _STEP_ALONE_AT_LAST = 4, 12  # steps, where no batch was gone on with
_MOST_TRAININGS = 3  # of a script, that are gone on from
_LONGEST_TURN = 8  # steps of optimizers, each its own
# files that hold a batch back until the next one is there
_LOOKS_AHEAD = ("accelerate/data_loader.py",)


class TrainingProgress:
    """Counts batches, backwards and steps; all of it is cheap, since it is asked at every batch of a run."""

    def __init__(self) -> None:
        self.num_backwards = 0
        # so many batches of this training, by the data set
        self._handed: Counter[int] = Counter()
        self._since_step: list[
            tuple[int, int]
        ] = []  # the iterators, and data sets, that handed over batches since a step for training
        self._backwards_at_step = 0
        self._window = 1  # so many backwards led to the last step
        self._is_of_a_run = False  # the last step
        self._steps = 0  # since the batch before
        self._last_steps = 0  # in the last batch, or window of batches, that led to any
        self._trained: set[int] = set()
        self._evaluated: set[int] = set()
        self._places = list(STEP_PLACES)
        self._has_begun_epoch = False  # one that was tried
        self._has_looked_at_memory = False
        self._has_looked_at_step = False
        self._num_optimizers = 0  # that have stepped
        self._last = deque[int](maxlen=2 * _LONGEST_TURN)  # the optimizers of the last steps
        self._first = 0  # the optimizer that began this training
        self._num_trainings = 0  # that were gone on from before this one
        self._num_steps_made = 0  # in this training
        self._steps_alone = 0  # so many steps in a row that no batch was handed over for
        self._has_forked = False
        self._why_not: dict[int, Counter[str]] = {}  # at each batch, by the data set

    def stepped(self, optimizer: object, num_optimizers: int, *, is_only_one: bool) -> bool:
        """Note that an optimizer has stepped; tell whether it began a training, so that one may go on from there once more.

        Args:
            optimizer: that has.
            num_optimizers: that have stepped.
            is_only_one: whether this is the only one of them that may step again.
        """
        is_new = num_optimizers > self._num_optimizers
        begins = (
            is_new and (is_only_one or self._has_forked_in_training) and self._begin_training_if_allowed()
        )
        self._num_optimizers = num_optimizers
        if begins or not self._last:
            self._first = id(optimizer)
        self._last.append(id(optimizer))
        self._steps += 1
        self._is_of_a_run = bool(UNDER_WAY)
        self._num_steps_made += 1
        self._trained.update(data for _, data in self._since_step[-1:])
        self._steps_alone = 0 if self._since_step else self._steps_alone + 1
        self._since_step = []
        self._window = max(1, self.num_backwards - self._backwards_at_step)
        self._backwards_at_step = self.num_backwards
        return begins

    def _begin_training_if_allowed(self) -> bool:
        self._num_trainings += self._has_forked_in_training
        if self._num_trainings >= _MOST_TRAININGS:
            return False
        if self._has_forked_at_batch:
            self._places = list(STEP_PLACES)
            self._handed.clear()
        self._has_looked_at_memory = self._has_looked_at_step = False
        self._num_steps_made = self._steps_alone = 0
        return True

    @property
    def _has_forked_in_training(self) -> bool:
        """Whether one has gone on from somewhere in this training."""
        return self._has_looked_at_memory or self._has_looked_at_step or self._has_forked_at_batch

    @property
    def _has_forked_at_batch(self) -> bool:
        return len(self._places) < len(STEP_PLACES)

    @property
    def window(self) -> int:
        """How many backwards led to the last step."""
        return self._window

    @property
    def turn(self) -> int:
        """In how many steps optimizers take their turns, each of them once; 0 where no such turn has just ended."""
        last = list(self._last)
        for length in range(1, min(_LONGEST_TURN, len(last) // 2) + 1):
            one = last[-length:]
            if len(set(one)) == length and one == last[-2 * length : -length]:
                return length if self._first == one[0] or self._first not in one else 0
        return 0

    def have_all_stepped_lately(self, optimizers: Iterable[object], num_steps: int) -> bool:
        """Tell whether all of these optimizers are among those of so many last steps."""
        return {id(each) for each in optimizers} <= set(list(self._last)[-num_steps:])

    @property
    def num_steps(self) -> int:
        """How many steps of optimizers follow a batch, or a window of batches."""
        return self._last_steps

    @property
    def has_passed_over_batches(self) -> bool:
        """Whether batches of a data set that trained were passed over."""
        return any(data in self._trained for data in self._why_not)

    @property
    def why_not(self) -> str:
        """Why no child was forked at a batch: as a data set says that trained, and most often; "" where one was."""
        if self._has_forked:
            return ""
        found = [each for data, each in self._why_not.items() if data in self._trained]
        # what comes last is an evaluation's as a rule, and says nothing of the training
        found = found or list(self._why_not.values())[-1:]
        reasons = sum(found, Counter[str]())
        return reasons.most_common(1)[0][0] if reasons else "no loader handed over a third batch"

    def note_batch_handed_over(
        self, iterator: Any, *, are_models_resting: Callable[[], bool] = lambda: False
    ) -> bool:
        """Note that a batch is handed over; tell whether a child may be forked here that goes on to the step it is for.

        Args:
            iterator: that hands it over.
            are_models_resting: whether all models are in eval mode.
        """
        own = id(iterator._dataset)
        if self._steps:
            self._last_steps, self._steps = self._steps, 0
        self._handed[own] += 1
        evaluates = self._trained and own not in self._trained and are_models_resting()
        if evaluates or not torch.is_grad_enabled():  # its batches are no part of a step
            return False
        others, self._since_step = self._since_step, [*self._since_step, (id(iterator), own)]
        if not self._places or self._handed[own] < self._places[0]:
            return False
        obstacle = self._why_no_fork_at_batch(iterator, [each for each, _ in others])
        if obstacle is not None:
            self._why_not.setdefault(own, Counter())[obstacle] += 1
            return False
        self._places.pop(0)
        self._has_forked = True
        return True

    def has_steps_without_loader(self) -> bool:
        """Whether at least the third step in a row was made just now that no loader handed over a batch for."""
        if self._has_looked_at_memory:
            return False
        return self._steps_alone >= (STEP_PLACES[0] if self.turn else _STEP_ALONE_AT_LAST)

    def note_memory_look(self) -> None:
        """Note that a batch in memory is looked for: once in a training."""
        self._has_looked_at_memory = True

    def can_fork_at_step(self) -> bool:
        """Whether a step was made just now from which one may go on to the next, whatever its batch is: once in a training."""
        if self._has_looked_at_step:
            return False
        return self._num_steps_made >= (_STEP_ALONE if self.turn else _STEP_ALONE_AT_LAST)

    def note_step_fork(self) -> None:
        """Note that one was gone on from."""
        self._has_looked_at_step = True

    def begins_epoch(self, iterator: Any) -> bool:
        """Tell, of a batch that was just noted, whether it is the first of a training pass over data that were passed before."""
        own = id(iterator._dataset)
        known = own in self._trained and self._handed[own] > 1
        if self._has_begun_epoch or not known or iterator._num_yielded != 1 or not torch.is_grad_enabled():
            return False
        if (
            len(self._since_step) > 1
            or self.num_backwards != self._backwards_at_step
            or num_prefetched_batches()
        ):
            return False
        self._has_begun_epoch = True
        return True

    def begins_evaluation(self, iterator: Any, *, are_models_resting: Callable[[], bool]) -> bool:
        """Tell, of a batch that was just noted, whether it is the first of an evaluation that was not tried.

        Args:
            iterator: that handed it over.
            are_models_resting: whether all models are in eval mode, which says it where gradients are on in the loop itself.
        """
        own = id(iterator._dataset)
        if not self._trained or iterator._num_yielded != 1:
            return False
        if torch.is_grad_enabled() and (own in self._trained or not are_models_resting()):
            return False
        if own in self._evaluated or len(self._evaluated) >= MOST_EVALUATIONS:
            return False
        self._evaluated.add(own)
        return True

    def _why_no_fork_at_batch(self, iterator: Any, others: Sequence[int]) -> str | None:
        """Return why no child is forked at a batch; others were handed over since the last step, by these iterators."""
        if threading.current_thread() is not threading.main_thread():
            return TAKEN_BESIDE
        if id(iterator._dataset) not in self._trained:
            return "no step of an optimizer follows the batches of the loader"
        if any(each != id(iterator) for each in others):
            return "several loaders hand over batches for one step"
        since = self.num_backwards - self._backwards_at_step
        ahead = (
            num_prefetched_batches() if iterator._num_yielded > 1 else 0
        )  # before a pass's first none is held
        # a batch that is held back goes backward before this one, and may be the last of its window
        if (since + ahead) % self._window if ahead else since:
            return AMID if since else "a batch that is held back belongs to the same accumulation"
        if others and not ahead:
            return "another batch was handed over before it for the same step"
        if not self._backwards_at_step:
            return OF_A_RUN if self._is_of_a_run else "gradients come from no backward()"
        return None


def num_prefetched_batches() -> int:
    """Return how many batches are handed over before the one that is used, as far as libraries are known for it."""
    frame = sys._getframe(1)
    while frame is not None and "/truestep/" in frame.f_code.co_filename.replace("\\", "/"):
        frame = frame.f_back  # type: ignore[assignment]
    while frame is not None:
        if frame.f_code.co_filename.replace("\\", "/").endswith(_LOOKS_AHEAD):
            return 1
        frame = frame.f_back  # type: ignore[assignment]
    return 0
