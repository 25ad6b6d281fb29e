# SPDX-License-Identifier: Apache-2.0
"""What can't have been meant in a training: no update at all, updates in evaluation mode, a metric waited for in vain."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from truestep.core.errors import OptionError, did_you_mean
from truestep.core.text_formatting import keyword_text, plural
from truestep.engine.parts import LearnerParts
from truestep.run.media.kind import EncodedMedia
from truestep.run.notebook import is_interactive_session
from truestep.run.owning_process import folder_of_running_loop
from truestep.run.rates import unfinished_schedule_message
from truestep.run.state import RunState
from truestep.run.unsaved_models import UntrackedModelWatcher

_MORE_THAN_A_TRIAL = 2  # updates: one may try whether a loss can be computed
_SURELY_MEANT = 2  # bodies of run.steps with a whole pass in each
_EPOCHS_WAITED = 2  # with something logged in each; an evaluation may come in every second one only


class TrainingOmissionWatcher:
    """Looks at the end of each epoch and of the run, and says each thing once."""

    def __init__(self, run: RunState) -> None:
        self._run, self._cursor, self._learners = run, run.cursor, run.context.learners
        self._once = run.screen.say_once
        self._unkept = UntrackedModelWatcher(run)
        run.context.on_new_loss = self._look_at_new_loss
        self._epochs_logged = 0
        self._is_logged = False  # something, in this epoch
        self._seen_evaluating: set[str] = set()
        self._begun_at: int | None = None
        self._written: dict[
            str, int
        ] = {}  # how often each learner's weights had been written when the loop began
        self._num_outside = 0  # updates before any loop of the run
        self._passes_in_steps = 0
        self._updated_at: int | None = None  # the step of the last update in the body of a loop over batches
        self.computes_from = 0
        """The step at which the update that is under way began: one may be open around a loop over batches."""
        self.trains = False
        """Whether a learner has been updated in this process."""
        self.is_stepped_by_hand = False
        """Whether an optimizer of the user's own has moved a learner's weights in a loop of the run."""

    def _look_at_new_loss(self, loss: Callable[..., Any]) -> None:
        """A loss function is called for the first time."""
        from truestep.run.same_network_check import (
            same_network_called_twice_text,  # only once there is a loss
        )

        self._unkept.take_note(loss)
        if text := same_network_called_twice_text(loss):
            self._once(text)

    def loop_begins(self) -> None:
        """Note the step at which this process begins, and look at what came before."""
        if self._begun_at is None:
            self._begun_at = self._cursor.step
            self._unkept.loop_begins()
            self._written = {name: _num_in_place_weight_writes(each) for name, each in self._learners.items()}
            if self._num_outside:
                self._warn_of_updates_outside_loops()

    def epochs_begin(self, total: int) -> None:
        """Look at what came before, and whether it is over."""
        self._refuse_epochs_within_batches(total)
        self._look_for_batches_before()
        self._look_for_loop_around(total)

    def _refuse_epochs_within_batches(self, total: int) -> None:
        """Refuse a loop over epochs in the body of one over batches; a notebook may still hold one that an error has left."""
        leader = self._cursor.leader
        if (
            leader is not None
            and leader.in_body
            and leader.reader is not None
            and not is_interactive_session()
        ):
            raise OptionError(
                f"run.epochs({total}) was called in the body of a loop over run.batches({leader.label}), so the epochs would end "
                f"with its first batch. Turn the two round: for epoch in run.epochs({total}): for batch in "
                f"run.batches({leader.label}): net.update(loss, batch)"
            )

    def _look_for_batches_before(self) -> None:
        taken = self._cursor.step - (self._begun_at or 0)
        if taken and not (
            self.trains or self.is_stepped_by_hand or self._cursor.epoch or self._cursor.is_in_epoch_body
        ):
            self._once(
                f"{taken} batch{'es' * (taken > 1)} came from run.batches before run.epochs began, as "
                "next(iter(run.batches(source))) takes one, and no update was made: run.batches is the training's own pass, so "
                "what it gives counts as steps of the run. To look at the data look at what "
                "run.data was given; to look at a batch, do it in the loop: if run.step == 1: print(batch)"
            )

    def _look_for_loop_around(self, total: int) -> None:
        """Say so where a loop over epochs begins within another; a notebook may still hold one that an error has left."""
        if self._cursor.is_in_epoch_body and not is_interactive_session():
            self._once(
                f"run.epochs({total}) began inside the body of another loop over run.epochs: a run counts its epochs once, so the "
                f"inner loop uses them up. Write for ... in range({total}) for the loop inside"
            )

    def logged(self, names: Iterable[str], media: Mapping[str, EncodedMedia]) -> None:
        """See what was logged; a picture or sound whose values were cut off is not what was meant."""
        self._look_for_own_names(names)
        self._is_logged = True
        for name, each in media.items():
            if each.note:
                self._once(f"run.log({keyword_text(name)}): {each.note}. {each.advice}", key=f"media {name}")

    def _look_for_own_names(self, names: Iterable[str]) -> None:
        learners = self._learners
        own = ("loss", "gradient_norm", "learning_rate") if len(learners) == 1 and self.trains else ()
        for name in (each for each in own if each in names):
            self._once(
                f"run.log({keyword_text(name)}) "
                "has the name under which the run writes that of its updates by itself, every few steps: both "
                f"make one curve. Leave it out, or give another value another name: run.log({keyword_text(f'val_{name}')})",
                key=f"name {name}",
            )

    def updated(self, learner: LearnerParts) -> None:
        """See an update: one of a model that is in evaluation mode as a whole was most likely left there by `net.eval()`."""
        self._unkept.updated()
        if self._cursor.leader is None:
            self._note_update_outside_loop()
        else:
            self._updated_at = self._cursor.step
        if learner.module.training and self.trains and not self._run.is_closed:
            return  # as in nearly all updates
        if not self.trains:
            self.trains = True
            self._check_shuffling()
        if self._run.is_closed and (other := folder_of_running_loop()) is not None:
            self._once(_CLOSED.format(name=learner.name, own=self._run.directory, other=other.name))
        elif self._run.is_closed:
            self._once(
                "net.update was called behind run.close(): what it changes is in no checkpoint, no line and no report. Call "
                "run.close() last, or leave it out: a run closes itself when its epochs, or the process, are over"
            )
        if not learner.module.training and learner.name not in self._seen_evaluating:
            self._seen_evaluating.add(learner.name)
            self._warn_of_evaluation_mode(learner)

    def step_done(self, made: int) -> None:
        """See a body of `run.steps` that made several updates: in two with whole passes of a source the loops are mixed up."""
        for each in self._cursor.streams.values():
            is_whole = each.beside and each.reader is None and each.limit is None and not each.crossed
            if is_whole and 1 < each.given <= made and each.finished:
                self._passes_in_steps += 1
                if self._passes_in_steps == _SURELY_MEANT:
                    self._once(_PASSES_IN_STEPS.format(label=each.label, num=each.given))

    def _warn_of_other_runs_loop(self, other: Path) -> None:
        again = "; in a notebook, run that cell again" if is_interactive_session() else ""
        self._once(
            f"a learner of the run in {self._run.directory} was updated in the loop of the run in {other}, which has no learner: "
            f"no checkpoint of {other.name} holds what is trained. Make the learner of that run, net = run.learner(...), "
            f"before its loop{again}",
            key="loop of another run",
        )

    def _note_update_outside_loop(self) -> None:
        """See an update where no batch of the run's is open: before its loops, or behind one whose batches went unused."""
        if (other := folder_of_running_loop(without_learners=True)) is not None:
            self._warn_of_other_runs_loop(other)
            return
        if self._begun_at is None:
            self._num_outside += 1
            if self._num_outside == _MORE_THAN_A_TRIAL:
                self._warn_of_updates_outside_loops()
            return
        cursor = self._cursor
        if cursor.is_over and not self._run.in_block:
            self._once(_UNSAVED.format(loop=cursor.is_over), key="behind the loop")
        unused = cursor.step - self._begun_at if self.computes_from == cursor.step else 0
        if self._updated_at is None and unused > 1 and cursor.in_epoch_body:
            self._once(
                f"net.update stands behind the loop over run.batches, which has given out all of its {unused} batches: behind a "
                "loop it is made once, and batches taken beforehand, as by list(run.batches(source)), count as done, so that a run "
                "which is stopped leaves them out. Write it into that loop: for batch in run.batches(source): net.update(loss, "
                "batch)",
                key="behind",
            )

    def _warn_of_updates_outside_loops(self) -> None:
        self._once(
            "net.update was called before any loop of the run: no step is counted for it, no checkpoint is saved behind it, and "
            "each start of the script makes it again, also on weights that were restored. Write it into the loop: for epoch in "
            "run.epochs(20): for batch in run.batches(source): net.update(loss, batch); without a data set, for step in "
            "run.steps(10_000): net.update(loss, batch)",
            key="outside",
        )

    def _check_shuffling(self) -> None:
        leader = self._cursor.leader
        if leader is not None and leader.source.is_sorted_by_class():
            self._once(
                "the samples that are trained on come class by class, with their labels in order, and nothing shuffles them: a "
                "batch holds one class or two, and each step unlearns what the last ones taught. Write run.data(..., shuffle=True)"
            )

    def _warn_of_evaluation_mode(self, learner: LearnerParts) -> None:
        from truestep.doctor.runtime.tensor_queries import (
            watched_sensitive_layers,  # most runs never come here
        )

        if layers := watched_sensitive_layers(learner.module, training=False):
            self._once(
                f"{learner.name!r} is updated in evaluation mode, so {' and '.join(layers)} in it act as they do in evaluation: "
                "dropout drops nothing, batch norm learns no statistics. Write net.train() before the update (net.evaluate "
                "changes the mode and puts it back by itself). If a part of it is meant to stay as it is, put that alone into "
                "the mode: net.train(), then net.backbone.eval(), and ts.freeze(net.backbone) for its weights"
            )

    def epoch_ended(self) -> None:
        """Look once an epoch is over: for updates after the first, for metrics after the first that logged any."""
        self._epochs_logged += self._is_logged
        self._is_logged = False
        self._unkept.look()
        self._look_for_updates()
        self._look_for_batches()
        if self._epochs_logged >= _EPOCHS_WAITED:
            self._look_for_metrics(f"has not come in {plural(self._epochs_logged, 'epoch')}")

    def run_ended(self) -> None:
        """Look for the last time."""
        self._unkept.look()
        self._look_for_batches()
        if not self._cursor.step:
            return
        self._look_for_updates()
        self._look_for_idle_learners()
        self._look_for_metrics("did not come before the training ended")
        for learner in () if self._cursor.finished else self._learners.values():
            if said := unfinished_schedule_message(learner):
                self._once(said, key=f"end of the schedule of {learner.name}")

    def _look_for_idle_learners(self) -> None:
        """Say which learners have no update of their own, where others have: one that a late start awaits, or whose weights
        came by `load_state_dict` or a hand-written average, is not idle.
        """
        learners = self._learners.values()
        idle = [each for each in learners if not (each.counters.updates or each.counters.skipped)]
        idle = [each for each in idle if not each.options.starts_at]
        idle = [
            each for each in idle if self._written.get(each.name) in (None, _num_in_place_weight_writes(each))
        ]
        if self.is_stepped_by_hand or not 0 < len(idle) < len(learners):
            return
        for each in idle:
            self._once(
                f"{each.name!r} was never updated in {plural(self._cursor.step, 'step')}, so its weights are as at first: "
                "another learner's update leaves it alone, whatever its loss is made of. Write an update of its own into the loop, "
                f"{each.name}.update(its_loss, batch), or ts.update([{', '.join(self._learners)}], loss, batch) for one loss of "
                "both. A model that is not trained needs no learner: run.track keeps it",
                key=f"idle {each.name}",
            )

    def _look_for_updates(self) -> None:
        learners, num_batches = self._learners, self._cursor.step
        made = self.trains or self.is_stepped_by_hand
        made = made or any(each.counters.updates + each.counters.skipped for each in learners.values())
        if made or not num_batches or not any(each.started for each in learners.values()):
            return
        names = " and ".join(map(repr, learners))
        self._once(
            f"no update was made in {plural(num_batches, 'batch', 'batches')}, so the weights of {names} are as they were at "
            "first. To train, write net.update(loss, batch) in the loop: for batch in run.batches(source)",
            key="updates",
        )

    def _look_for_batches(self) -> None:
        if self.trains and not self._cursor.step:
            self._once(
                "updates were made, and no batch came from run.batches: no step is counted, so no metrics are written between two "
                "epochs, and a run that is stopped can't find its place in the data. Write source = run.data(data) before the "
                "loop, which also takes a DataLoader, and for batch in run.batches(source); without a data set, for step in "
                "run.steps(10_000)",
                key="batches",
            )

    def _look_for_metrics(self, when: str) -> None:
        for name, waiting, lost in self._awaited_unlogged_metrics():
            names = ", ".join(sorted(self._run.logged))
            logged = f"Logged was {names}" if names else "Nothing had been logged by then"
            near = did_you_mean(name, self._run.logged).strip()
            self._once(
                f"{waiting} waits for run.log({keyword_text(name)}), which {when}: {lost}. {logged}. {near}".rstrip(
                    ". "
                ),
                key=waiting,
            )

    def _awaited_unlogged_metrics(self) -> Iterator[tuple[str, str, str]]:
        """Yield each metric that is waited for and was never logged, with what waits, and what does not happen without it."""
        best = self._run.saving.best
        if best is not None and self._run.best is None and best not in self._run.logged:
            yield best, f"ts.Saving(best={best!r})", "no checkpoint is kept as the best"
        for learner in self._learners.values():
            for name in learner.schedules.awaited_metrics:
                schedule = f"ts.plateau(o, metric={name!r}) of {learner.name!r}"
                yield name, schedule, "the learning rate never changes"


def _num_in_place_weight_writes(learner: LearnerParts) -> int:
    """Return how often anything was written into a learner's weights, by torch's own count."""
    return sum(each._version for each in learner.module.parameters())


_CLOSED = (
    "{name!r}, a learner of the run in {own}, which is closed, was updated in the loop of the run in {other}: no checkpoint has "
    "what that changes, and the learner of this run is not trained. A function keeps the learner that was there when it was made: "
    "make it again, behind net = run.learner(...) of this run, or give it the learner by an argument"
)
_UNSAVED = (
    "net.update stands behind {loop}, at whose end the run was saved: what it changes is in a checkpoint only where run.close() "
    "follows, or with ts.Run(...) as run: is around both. Write it into the loop"
)
_PASSES_IN_STEPS = (
    "each body of run.steps holds a whole pass over run.batches({label}), with {num} updates: run.steps counts it as one step, so "
    "that run.step, run.steps' total and the moments to save count passes and not batches. Write for epoch in run.epochs(20): "
    "for batch in run.batches({label}): net.update(loss, batch), and limit= in run.batches for shorter epochs"
)
