# SPDX-License-Identifier: Apache-2.0
"""What the parts of a run share: what it was told, where it stands, what it keeps, and whose it is. None of them holds the run."""

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from truestep.checkpoints.retention import Retention
from truestep.core.secret_values import hide_secrets
from truestep.core.user_frames import running_user_lines
from truestep.engine.shared_context import LearnerContext
from truestep.mirror.address import lease_seconds
from truestep.run.agreement import RankAgreement
from truestep.run.cursor import RunCursor
from truestep.run.logbook import RunLogbook
from truestep.run.loop_random import LoopRandomGenerators
from truestep.run.options import Resume, Saving
from truestep.run.owning_process import RunOwner
from truestep.run.screen import RunConsole
from truestep.run.secret_hashes import RunSecretsHider
from truestep.run.trackers.hub import Trackers
from truestep.run.trackers.tracker import Tracker, Tracking
from truestep.run.tracking import TrackedObjects
from truestep.run.user_state import RunStateValues

if TYPE_CHECKING:
    from truestep.mirror.mirror import RunMirror


MARKS_SECONDS = 5.0


class MirrorOfRun:
    """The mirror of a run, on rank 0; of a run without one, and on the other ranks, all of this does nothing."""

    def __init__(
        self, address: str | None, directory: Path, retention: Retention, screen: RunConsole
    ) -> None:
        self.address = address
        self._directory, self._retention, self._screen = directory, retention, screen
        self._seconds = lease_seconds()
        self._mirror: RunMirror | None = None

    def open(self, resume: str) -> None:
        """Take the run's place in the store, and bring the directory to what is newer there."""
        if self.address is None or self._mirror is not None:
            return
        # here, so that a run without a mirror imports nothing of it
        from truestep.mirror.opening import MirrorOpenOptions, open_mirror

        opening = MirrorOpenOptions(self.address, self._directory, resume, self._retention, self._seconds)
        self._mirror = open_mirror(opening, self._screen.say, self._screen.note)

    @property
    def is_open(self) -> bool:
        """Whether there is a place in a store that this process holds."""
        return self._mirror is not None

    @property
    def pinned(self) -> Collection[int]:
        """The numbers of the saves that are being sent."""
        return () if self._mirror is None else self._mirror.pinned

    def look(self) -> None:
        """Say what there is to say; raises a RunDirectoryError once another process has gone on with the run."""
        if self._mirror is not None:
            # told first: what is said may explain why the check raises
            self._print_mirror_messages(self._mirror)
            self._mirror.check()

    def wait_for_attempt_in_store(self) -> None:
        """A start was counted: wait a moment until the store knows, so that it counts if this process dies."""
        if self._mirror is not None:
            # a start that dies before the store knows would be tried for ever on another machine
            self._mirror.flush_marks(MARKS_SECONDS)

    def close(self, until: float | None) -> None:
        """Send what is left, until a moment of `time.monotonic` at most, and give the place back."""
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            mirror.close(until)
            self._print_mirror_messages(mirror)

    def _print_mirror_messages(self, mirror: "RunMirror") -> None:
        while mirror.said:
            self._screen.say(mirror.said.popleft())


_attempts = operator.attrgetter("counters.attempts")


@dataclass(eq=False)
class RunState:
    """A run without its loop."""

    context: LearnerContext
    agreement: RankAgreement
    directory: Path
    saving: Saving
    resume_as: Resume
    strategy: str
    config: dict[str, Any] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)
    """What its directory keeps of what it was told."""
    cursor: RunCursor = field(default_factory=RunCursor)
    tracked: TrackedObjects = field(default_factory=TrackedObjects)
    owner: RunOwner = field(default_factory=RunOwner)
    user: dict[str, Any] = field(default_factory=RunStateValues)
    """What the user knows as `run.state`."""
    logged: set[str] = field(default_factory=set)
    """The names of all numbers that this process has logged."""
    best: float | None = None
    holds_run: bool = False
    """Whether its directory held the run already."""
    edits: list[str] = field(default_factory=list)
    """What the code has changed since, with `resume="edited"`."""
    has_begun: bool = False
    """Whether its state was restored, or there was none: before that there is nothing to save."""
    made_at: list[tuple[CodeType, int]] = field(default_factory=running_user_lines)
    """The code of the user's in which it was made, with its lines."""
    asked_early: set[tuple[CodeType, int]] = field(default_factory=set)
    """Where it was asked for its step before it had gone to its place."""
    asked_epoch: set[tuple[CodeType, int]] = field(default_factory=set)
    """Where it was asked for its epoch while no loop over epochs was under way."""
    is_closed: bool = False
    """Whether it was closed, and no loop was begun since: what is tracked is the user's own again."""
    in_block: bool = False
    """Whether a `with` block is around it, at whose end it is saved."""
    reported: tuple[object, ...] | None = None
    """What the last report was made of."""
    secrets: RunSecretsHider = field(init=False)
    random: LoopRandomGenerators = field(init=False)
    screen: RunConsole = field(init=False)
    trackers: Trackers = field(init=False)
    logbook: RunLogbook = field(init=False)
    mirrored: MirrorOfRun = field(init=False)

    def __post_init__(self) -> None:
        self.secrets = RunSecretsHider(self.directory)
        self.random = LoopRandomGenerators(self.context, self.cursor)

    def set_up_reporting(self, screen: RunConsole, trackers: Sequence[Tracker], log_every: int) -> None:
        """Say from now on where the run stands: on the screen, in its metrics, to its trackers."""
        self.screen = screen
        self.trackers = Trackers(trackers if self.is_main else (), self._tracking_info, screen.say)
        # rank 0 alone writes and shows; the others have logbooks that write nothing, so that code is the same on all
        learners = self.context.learners
        self.logbook = RunLogbook(self.directory, log_every, learners, self.trackers, writes=self.is_main)
        self.logbook.drawn = self.cursor.streams.drawn

    def mirror_at(self, address: str | None) -> None:
        """Keep the run in a store, too."""
        self.mirrored = MirrorOfRun(address, self.directory, self.saving.retention(), self.screen)

    def _tracking_info(self) -> Tracking:
        history = self.logbook.history
        return Tracking(
            directory=self.directory, config=hide_secrets(self.config), step=self.cursor.done, history=history
        )

    @property
    def rank(self) -> int:
        """This process's number among all of the run's."""
        return self.context.rank

    @property
    def world_size(self) -> int:
        """How many processes the run has."""
        return 1 if self.context.world is None else self.context.world.size

    @property
    def attempts(self) -> int:
        """How many updates the learners have tried."""
        return sum(map(_attempts, self.context.learners.values()))

    @property
    def is_main(self) -> bool:
        """Whether this process writes what is shared."""
        return self.rank == 0
