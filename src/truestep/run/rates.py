# SPDX-License-Identifier: Apache-2.0
"""Learning rates while a run trains: schedules that count epochs are stepped, and those that end too early are named."""

from typing import NamedTuple

from torch.optim.lr_scheduler import MultiStepLR

from truestep.core.schedule_units import schedule_climbs_again, schedule_ends_after
from truestep.core.text_formatting import number_text, plural
from truestep.engine.parts import LearnerParts
from truestep.engine.step import receive_update_report
from truestep.run.cursor import RunCursor
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor

NOTHING = 1e-6  # times what the rate was at first: nothing that is trained with it moves any more
_FIRST_UPDATES = 8
HALF = 0.5  # of a schedule: a training that ends within it was not what it was made for
LAST_PART = 0.1  # of a run; a schedule may end this early


class LearningRateWatcher:
    """Looks at the schedules of all learners at each line of metrics; each is named once."""

    def __init__(self, run: RunState) -> None:
        self._cursor, self._screen, self._learners = run.cursor, run.screen, run.context.learners
        self._total_epochs: int | None = None
        self._updates_looked_at = _FIRST_UPDATES
        # the first that leads: a pass over other data says nothing of an epoch's length
        self._stream: StreamCursor | None = None

    def begin(self, total_epochs: int) -> None:
        """The epochs begin: from now on it is known how long the run is."""
        self._total_epochs = total_epochs

    def epoch_ended(self) -> None:
        """Step the schedules that count epochs, of the learners that have been updated."""
        self.warn_of_rates_set_by_hand()
        for learner in self._learners.values():
            if not learner.schedules.per_epoch:
                continue
            receive_update_report(learner)
            if learner.counters.updates:
                learner.schedules.epoch_ended()

    def look(self, stream: StreamCursor) -> None:
        """Name schedules that were over before the first epoch was, or have brought the rate to nothing."""
        self.warn_of_rates_set_by_hand()
        self._stream = self._stream or stream
        place = _position_in_run(self._cursor, stream, self._total_epochs)
        if stream is not self._stream or place is None or place.remaining_fraction < LAST_PART:
            return
        for learner in self._learners.values():
            if learner.schedules.names and not self._screen.has_said(_schedule_message_key(learner)):
                self._check_schedule_of_learner(learner, place)

    def update_begins(self) -> None:
        """Look at the rates before the first updates: behind one its schedule has set them anew."""
        if self._updates_looked_at:
            self._updates_looked_at -= 1
            self.warn_of_rates_set_by_hand()

    def warn_of_rates_set_by_hand(self) -> None:
        """Name rates that somebody has set and a schedule sets anew."""
        for learner in self._learners.values():
            if not (learner.schedules.per_update or learner.schedules.per_epoch):
                continue
            key = f"rate of {learner.name} by hand"
            if not self._screen.has_said(key) and (found := learner.schedules.find_manual_rate()):
                self._screen.say_once(
                    f"the learning rate of {learner.name!r} was set to {found.rate:.3g} by hand, and its schedule= "
                    f"({found.schedule}) sets it anew after each {found.unit}, from {found.own:.3g} on: what is set by hand is "
                    "lost. "
                    "Leave that line or schedule= out; a rate that falls when a metric stalls is schedule=ts.plateau",
                    key,
                )

    def _check_schedule_of_learner(self, learner: LearnerParts, place: "_RunPosition") -> None:
        updates = _num_updates_of_ended_schedule(learner)
        rate = f"{learner.learning_rate:.3g}"
        climbs = updates is not None and any(map(schedule_climbs_again, learner.schedules.per_update))
        if updates is not None and (climbs or place.epoch == 0):
            which = f"seen in epoch {place.epoch + 1}" if place.epoch else "in the first"
            when = f"was over after {number_text(updates)} updates, {which} of {place.epochs}"
            what = f"the learning rate {'climbs again, and ' if climbs else ''}is {rate} now"
        elif _has_only_zero_rates(learner):
            when = f"has brought the learning rate to nothing ({rate}) in epoch {place.epoch + 1} of {place.total_epochs}"
            what = "what follows would hardly change the weights"
        else:
            return
        said = f"the schedule of {learner.name} {when}; {what}. {_schedule_counting_advice(learner, place)}"
        self._screen.say_once(said, _schedule_message_key(learner))

    def pass_done(self, stream: StreamCursor) -> None:
        """Look once more, and name schedules that wait for the end of an epoch in a loop that has none."""
        self.look(stream)
        if self._total_epochs is not None:
            return
        for learner in self._learners.values():
            if learner.schedules.per_epoch:
                self._screen.say_once(
                    f"the schedule of {learner.name} counts epochs, and no loop over run.epochs(...) is under way, so it never "
                    "moves. Write for epoch in run.epochs(total): around the loop over batches, or ts.per_update(...).",
                    _schedule_message_key(learner),
                )


def unfinished_schedule_message(learner: LearnerParts) -> str | None:
    """Return what to say of a schedule over a number of steps of which a training that is over has made half at most."""
    schedules = learner.schedules
    for schedule in (*schedules.per_update, *schedules.per_epoch):
        end = None if isinstance(schedule, MultiStepLR) else schedule_ends_after(schedule)
        if end is not None and 0 < schedule.last_epoch <= end * HALF:
            unit = "epoch" if schedule in schedules.per_epoch else "update"
            return (
                f"the schedule of {learner.name} ({type(schedule).__name__}) is over {plural(end, unit)}, and the training ended "
                f"behind {schedule.last_epoch}: its learning rate is {learner.learning_rate:.3g} still. It counts {unit}s: give it "
                "as many as the training has, or train longer"
            )
    return None


def _schedule_message_key(learner: LearnerParts) -> str:
    return f"schedule of {learner.name}"


class _RunPosition(NamedTuple):
    """How far a run has come."""

    epoch: int
    total_epochs: int
    batches: int
    """Given out so far, over all epochs."""
    batches_per_epoch: int | None

    @property
    def epochs(self) -> str:
        """How many epochs there are, in words."""
        return f"{self.total_epochs} epochs" if self.total_epochs > 1 else "its only epoch"

    @property
    def remaining_fraction(self) -> float:
        """The part of the run that is still to come, at least."""
        whole = self.total_epochs - self.epoch - 1
        if self.batches_per_epoch is None:
            return whole / self.total_epochs
        return 1 - self.batches / (self.total_epochs * self.batches_per_epoch)


def _position_in_run(
    cursor: RunCursor, stream: StreamCursor, total_epochs: int | None
) -> _RunPosition | None:
    if not total_epochs:
        return None
    length = stream.source.num_batches
    done = cursor.epoch * length + stream.batch if length else cursor.step
    return _RunPosition(cursor.epoch, total_epochs, done, length or None)


def _num_updates_of_ended_schedule(learner: LearnerParts) -> int | None:
    """Return after how many updates a schedule of the learner was over, None while one goes on."""
    ends = [end for each in learner.schedules.per_update if (end := schedule_ends_after(each)) is not None]
    return max(ends) if ends and learner.counters.updates >= max(ends) else None


def _has_only_zero_rates(learner: LearnerParts) -> bool:
    """Whether no group of the optimizers has a rate left; a warm-up may begin at nothing."""
    if all(each.last_epoch == 0 for each in (*learner.schedules.per_update, *learner.schedules.per_epoch)):
        return False
    groups = [group for optimizer in learner.optimizers for group in optimizer.param_groups]
    first = max(float(group.get("initial_lr", 0.0)) for group in groups)
    return first > 0 and all(abs(float(group["lr"])) <= NOTHING * first for group in groups)


def _schedule_counting_advice(learner: LearnerParts, place: _RunPosition) -> str:
    if not learner.schedules.per_update:
        return "It counts epochs."
    whole = ""
    if place.batches_per_epoch and place.batches:
        updates = learner.counters.updates * place.batches_per_epoch * place.total_epochs / place.batches
        whole = f": the whole run has about {number_text(round(updates))}"
        if (each := learner.counters.updates / place.batches) > 1:
            whole += f", {number_text(round(each, 1))} with each batch"
    return f"It counts updates that were applied{whole}. For a schedule in epochs write schedule=ts.per_epoch(...)."
