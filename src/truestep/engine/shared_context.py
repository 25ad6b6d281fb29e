# SPDX-License-Identifier: Apache-2.0
"""What the learners of one training share, and how it is observed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from truestep.core.device_specific import is_cpu_device
from truestep.core.random_streams import KeyedRandom
from truestep.engine.automatic_choice import Choice
from truestep.engine.batch_unpacking_check import LastLoopBatch
from truestep.engine.batches import BatchOrigin
from truestep.engine.example_counting import LOOKED_AT, BatchCounting
from truestep.engine.example_draws import ExampleDraws, PlaceInBatch
from truestep.engine.parts import LearnerParts
from truestep.engine.policy import NonFinite
from truestep.engine.processes.world import World
from truestep.engine.result import Update
from truestep.engine.strategies import RankStrategy, SingleProcess
from truestep.engine.update_keys import UpdateKeys


class UpdateObserver:
    """What the engine tells whoever runs it; a run connects itself here. This one, of learners without a run, does nothing."""

    def starting(self, *, updates: bool = False) -> None:
        """Something is about to be computed, or updated: what is to be restored must be in place now."""

    def updated(self, learner: LearnerParts, update: Update) -> None:
        """A learner finished an update (or skipped it)."""

    def failed(self, error: Exception) -> None:
        """A function of the user's, called with a batch, raised an exception that is on its way out."""

    def wants_to_stop(self) -> bool:
        """Whether an evaluation should be left between two of its batches; it is done again after a resume."""
        return False

    def stop(self) -> None:
        """An evaluation was left because of `wants_to_stop`; everything is in its place again."""


@dataclass
class LearnerContext:
    """The device, the seed, the cursor and the learners of one training."""

    device: torch.device
    seed: int = 0
    rank: int = 0
    world: World | None = None
    """The processes that train together; None where this one is alone."""
    strategy: RankStrategy = field(default_factory=SingleProcess)
    nonfinite: NonFinite = "raise"
    observer: UpdateObserver = field(default_factory=UpdateObserver)
    step: int = 0
    """Batches so far: the cursor, which keys randomness and `starts_at`."""
    counting: BatchCounting = LOOKED_AT
    """How the batch that the loop was given last is counted."""
    given: LastLoopBatch = field(default_factory=LastLoopBatch)
    """The batch that the loop was given last."""
    is_busy: bool = False
    """Whether an update is under way."""
    torn_at: int | None = None
    """The step in whose update the optimizer, schedule or average was left by an exception, which may be an exit."""
    is_measuring: bool = False
    """Whether an evaluation is."""
    learners: dict[str, LearnerParts] = field(default_factory=dict)
    plans: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """What an update of each set of learners does; see `engine/plan.py`."""
    choices: list[Choice] = field(default_factory=list)
    on_new_loss: Callable[[Callable[..., Any]], None] | None = None
    """Is given each loss function when it is first used."""
    on_evaluated: Callable[[Any], None] | None = None
    """Is given the data of each evaluation, when it is over."""
    on_next_batch: Callable[[Any], None] | None = None
    """Is given the batch of the next update, once."""

    def __post_init__(self) -> None:
        self.is_host = is_cpu_device(self.device)
        """Whether what is computed is at hand; to ask the device for its type takes 8 µs in the midst of a training."""
        self._making: BatchOrigin | None = None  # of the only batch that the loop's body was given
        self.random = KeyedRandom.of(self.device)
        self.keys = UpdateKeys(self.seed)
        """Those of the current update."""
        self.draws = ExampleDraws(lambda: self.keys.draws_key(self.step))

    def advance(self, step: int) -> None:
        """Move the cursor: a new batch begins."""
        self.step = step
        for learner in self.learners.values():
            learner.keys.count = 0
        if self.world is not None:
            self.world.step = step

    def note_batch_made(self, batch: Any, making: BatchOrigin, *, leads: bool) -> None:
        """The loop is given a batch of which its source knows this; `leads`: the first of its body."""
        self.given.note(batch)
        self._making = making if leads else None
        if making != self.counting.making:
            self.counting = BatchCounting(making=making)
        # of the leader alone: what is read beside it may be read by one rank for itself
        if self.world is not None and leads:
            world = self.world
            world.num_given, world.num_given_here = making.num_examples_of_all_ranks, making.num_examples
            world.shares_given = making.shares

    def note_batch_done(self, *, leads: bool) -> None:
        """The loop's body is done with the batch: what the code behind the loop updates by is not of it."""
        if leads:
            self._making = None
            if self.world is not None:
                self.world.num_given = self.world.shares_given = None

    def place_in_batch(self) -> PlaceInBatch | None:
        """Return which rows of the loop's batch this process has; None where nobody knows, or the loop has several batches."""
        making = self._making
        if self.world is None or making is None:
            return None
        total = making.num_of_all_ranks if making.num_read is None else making.num_read
        if total is None:
            return None
        rows = self.world.share.of(total)
        return PlaceInBatch(rows.start, rows.stop - rows.start, total)

    def note_named_choice(self, what: str, choice: Choice) -> None:
        """Note a choice that was made for something with a name."""
        self.choose(f"{choice.name} of {what}", choice.value, choice.reason, weakens=choice.weakens)

    def choose(self, name: str, value: object, reason: str, *, weakens: bool = False) -> None:
        """Note an automatic choice; one made again replaces its predecessor."""
        self.choices = [choice for choice in self.choices if choice.name != name]
        self.choices.append(Choice(name, str(value), reason, weakens))
