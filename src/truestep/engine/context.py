# SPDX-License-Identifier: Apache-2.0
"""What the learners of one training share, and how it is observed."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from truestep.engine.choices import Choice
from truestep.engine.randomness import KeyedRandom, key_of

if TYPE_CHECKING:
    from truestep.engine.group import Group
    from truestep.engine.learner import Learner
    from truestep.engine.step import Update

NonFinite = Literal["raise", "skip", "keep", "rollback"]
NON_FINITE: tuple[NonFinite, ...] = ("raise", "skip", "keep", "rollback")


class Observer(Protocol):
    """What the engine tells whoever runs it; a run connects itself here."""

    def starting(self) -> None:
        """Something is about to be computed: what is to be restored must be in place now."""

    def updated(self, learner: "Learner", update: "Update") -> None:
        """A learner finished an update (or skipped it)."""

    def wants_to_stop(self) -> bool:
        """Whether an evaluation should be left between two of its batches; it is done again after a resume."""

    def stop(self) -> None:
        """An evaluation was left because of `wants_to_stop`; everything is in its place again."""


class Unobserved:
    """An observer that does nothing."""

    def starting(self) -> None:
        """Do nothing."""

    def updated(self, learner: "Learner", update: "Update") -> None:
        """Do nothing."""

    def wants_to_stop(self) -> bool:
        """Never."""
        return False

    def stop(self) -> None:
        """Do nothing."""


@dataclass
class Context:
    """The device, the seed, the cursor and the learners of one training."""

    device: torch.device
    seed: int = 0
    rank: int = 0
    nonfinite: NonFinite = "raise"
    observer: Observer = field(default_factory=Unobserved)
    step: int = 0
    """Batches so far: the cursor, which keys randomness and `starts_at`."""
    ordinal: int = 0
    """Updates since the cursor last moved."""
    is_busy: bool = False
    """Whether an update is under way."""
    learners: "dict[str, Learner]" = field(default_factory=dict)
    groups: "dict[tuple[int, ...], Group]" = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = KeyedRandom(self.device)

    def advance(self, step: int) -> None:
        """Move the cursor: a new batch begins."""
        self.step = step
        self.ordinal = 0

    def key(self, micro_batch: int) -> int:
        """Return the key of the random stream of one micro-batch of the current update."""
        return key_of(self.seed, self.step, self.ordinal, micro_batch, self.rank)

    def choose(self, name: str, value: object, reason: str, *, weakens: bool = False) -> None:
        """Note an automatic choice; one made again replaces its predecessor."""
        self.choices = [choice for choice in self.choices if choice.name != name]
        self.choices.append(Choice(name, str(value), reason, weakens))
