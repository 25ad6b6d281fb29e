# SPDX-License-Identifier: Apache-2.0
"""`ts.accelerate.ExactResume`: a prepared loader that goes on where a killed loop stopped, and `save_state` with what it lacks."""

import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from truestep.core.errors import OptionError, check_number
from truestep.core.held import NeverPickled
from truestep.core.wording import counted
from truestep.frameworks.accelerate.gradients import (
    Stand,
    held_gradients,
    put_gradients_back,
    stand_of_gradients,
)
from truestep.frameworks.accelerate.indices import foreign_count
from truestep.frameworks.accelerate.prepared import (
    prepared_optimizers,
    refuse_stepped,
    refuse_unprepared,
    say_unprepared,
    unkept_schedules,
)
from truestep.frameworks.attributes import PlainAttributes
from truestep.frameworks.beginning import Beginning, made_optimizers, made_schedules
from truestep.frameworks.kept import KeptCheckpoints
from truestep.frameworks.passes import KeyedPasses, order_of, refuse_processes
from truestep.run.loop_random import loop_random_state, set_loop_random_state

if TYPE_CHECKING:
    from accelerate import Accelerator

_LOOP = "for batch in exact:, with exact.save_state() as the last line of its body"
_MOST_WAITED = 64  # batches that a save waits for the end of an accumulation by hand


class ExactResume(NeverPickled):
    """Has a killed loop with Accelerate go on to the bits it would have ended with, from any batch.

    Write, behind `accelerator.prepare`: `exact = ts.accelerate.ExactResume(accelerator, loader, directory)`, loop `for epoch in
    range(exact.epoch, 20): for batch in exact:`, and end the body of the inner loop with `exact.save_state()`. It keeps all that
    `accelerator.save_state` saves, and what that lacks: the place in the pass, and the random streams that the data and the
    loader's workers draw from. A resumed run fetches the first batches of its epoch once more. What else a loop keeps belongs into
    `accelerator.register_for_checkpointing`.

    Args:
        accelerator: has prepared model, optimizer, schedule and loader.
        loader: the prepared training loader.
        directory: holds the checkpoints, of which the newest `keep` stay. One training has one directory.
        every_n_batches: batches from one save to the next; a save waits for the end of an accumulation.
        keep: how many checkpoints stay.

    Raises:
        OptionError: for several processes, data that is no DataLoader of torch's, and a model, optimizer or schedule that
            `accelerator.save_state` would not save.
    """

    _called, _variable = "ts.accelerate.ExactResume", "accelerate.exact"

    def __init__(
        self,
        accelerator: "Accelerator",
        loader: Any,
        directory: str | Path,
        *,
        every_n_batches: int = 100,
        keep: int = 2,
    ) -> None:
        check_number("ts.accelerate.ExactResume", "every_n_batches", every_n_batches, example=100, least=1)
        refuse_unprepared(accelerator, loader, directory)
        refuse_processes(accelerator.num_processes, "Accelerate")
        say_unprepared(loader)
        self._accelerator, self._loader, self._every = accelerator, loader, every_n_batches
        self._kept = KeptCheckpoints(directory, keep)
        self._kept.say_at_end(
            f"no batch was taken from exact, so nothing was saved in {directory}. Write {_LOOP}."
        )
        self._begun = Beginning(self._kept)
        # Accelerate's loader drops what is done: of a stream it takes a pass with nothing left for an error
        self._passes = KeyedPasses(lambda *_: 0)
        self._epoch = self._batches = self._since = self._saved = self._steps_elsewhere = 0
        self._is_epoch_asked = self._is_trained = self._is_save_called = self._is_body_saved = False
        self._place: dict[str, Any] = {}
        self._pass: object | None = None  # the one that is gone through
        self._before_pass = self._place, self._since
        self._stepped: dict[int, Stand] = {}  # in this body, by optimizer: gradients that it has used
        self._unkept: list[Any] | None = None
        self._watch_steps()
        self._load_state()

    def _load_state(self) -> None:
        begun, accelerator = self._begun, self._accelerator
        schedules = (*getattr(accelerator, "_schedulers", ()), *getattr(accelerator, "_custom_objects", ()))
        begun.made(accelerator, made_optimizers(prepared_optimizers(accelerator)), made_schedules(schedules))
        begun.model(*getattr(accelerator, "_models", ()))
        self._attributes = PlainAttributes(
            {f"model{number}": each for number, each in enumerate(getattr(accelerator, "_models", ()))}
        )
        begun.data(self._loader, accelerator.gradient_accumulation_steps)
        seeds = begun.seed()  # before Accelerate loads the streams
        if (newest := self._kept.newest) is not None:
            accelerator.load_state(str(newest.path))
            self._place, self._epoch, self._saved = newest.place, newest.place["pass"], newest.step
        begun.say_going_on()
        self._passes.begin(self._place, seeds)

    def _watch_steps(self) -> None:
        """Have each prepared optimizer of torch's tell of its steps, as long as this lives."""
        mine = weakref.ref(self)

        def tell(optimizer: Optimizer, *_: Any) -> None:
            if (exact := mine()) is not None:
                exact._take_note_of_step(optimizer)

        self._optimizers = [
            each for each in prepared_optimizers(self._accelerator) if isinstance(each, Optimizer)
        ]
        self._hooks = [each.register_step_post_hook(tell) for each in self._optimizers]
        self._awaits_step = bool(self._optimizers)

    def _take_note_of_step(self, optimizer: Optimizer) -> None:
        if self._pass is not None and self._is_body_saved:
            raise OptionError(
                "An optimizer steps behind exact.save_state() in the body of `for batch in exact:`, so the batch would count as "
                "done before it was trained on, and a killed run would leave it out. Make exact.save_state() the last line of the "
                "body."
            )
        if self._pass is None and not self._is_save_called:
            self._refuse_other_batches()
        self._awaits_step = False
        # it asks each gradient, so only where a save is near
        self._stepped[id(optimizer)] = stand_of_gradients(optimizer) if self._since >= self._every else {}

    def _refuse_other_batches(self) -> None:
        """Refuse a training whose batches come from the loader itself, as soon as a save would be due."""
        state = self._accelerator.gradient_state
        if state.active_dataloader is None or order_of(state.active_dataloader) != order_of(self._loader):
            return
        self._steps_elsewhere += 1
        if self._steps_elsewhere >= self._every:
            raise OptionError(
                f"{counted(self._steps_elsewhere, 'step')} took their batches from the loader, and not from the ExactResume of "
                f"{self._kept.directory}: nothing is saved to go on from. Write {_LOOP}."
            )

    @property
    def epoch(self) -> int:
        """The pass that comes next, or is under way."""
        if not self._is_epoch_asked:
            self._kept.say_at_end(
                f"exact.epoch is {self._epoch}, and no batch was taken from exact: range(exact.epoch, N) is empty for an N of at "
                f"most {self._epoch}, so nothing was trained. Write a larger N, or give ExactResume an empty directory."
                if self._epoch
                else f"no batch was taken from exact, so nothing was saved in {self._kept.directory}. Write {_LOOP}."
            )
        self._is_epoch_asked = True
        return self._epoch

    @property
    def batch(self) -> int:
        """How many batches of that pass are done: `for index, batch in enumerate(exact, exact.batch)`."""
        return int(self._place.get("batches", 0)) if self._pass is None else self._batches

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a pass, of the first one after a resume those that are left."""
        holder: list[Any] = []
        batches = self._batches_of_pass(holder)
        holder.append(weakref.ref(batches))
        return batches

    def _batches_of_pass(self, holder: list[Any]) -> Iterator[Any]:
        self._settle()  # somebody keeps an iterator, of which a batch was looked at
        mine = self._pass = object()
        self._before_pass = self._place, self._since
        done, self._batches, self._is_trained, is_whole = self._place.get("batches", 0), 0, False, False
        self._passes.await_pass(self._epoch, lambda: self._loader)
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(self._epoch)
        try:
            for batch in self._loader:
                self._refuse_second_loop(mine)
                self._batches += 1
                if self._batches > done:
                    self._begin_body(done, holder)
                    yield batch
            self._refuse_second_loop(mine)
            self._go_on()
            self._refuse_never_saved(self._since > 0)
            self._kept.take_note_of_use()
            is_whole, self._awaits_step = True, False
        finally:
            if self._pass is mine:
                self._settle(is_whole)

    def _begin_body(self, done: int, holder: list[Any]) -> None:
        if self._place and done and (count := foreign_count(holder[0](), done)):
            sys.stderr.write(
                f"truestep: {count}(...) counts the batches of exact from its own top, and this epoch goes on behind batch {done}. "
                "Write enumerate(exact, exact.batch), or itertools.islice(exact, N - exact.batch).\n"
            )
        self._go_on()
        self._refuse_never_saved(self._since >= self._every)
        self._since += 1
        if self._since > 1:  # else it may be a look at one batch
            self._kept.say_at_end(
                f"exact.save_state() was never called, so nothing was saved. Write {_LOOP}."
            )
        self._is_body_saved = False
        self._stepped.clear()

    def _settle(self, is_whole: bool = False) -> None:
        """End the pass that is gone through: as one that was trained on, or as a look at a batch."""
        place, since = self._before_pass
        if self._pass is not None and (is_whole or self._is_trained or self._since > since + 1):
            self._epoch += 1
        elif self._pass is not None:
            self._place, self._since = place, since
        self._pass = None

    def _refuse_second_loop(self, mine: object) -> None:
        if self._pass is not mine:
            raise OptionError(
                "A second loop over exact began within this one, so where it stands is lost. Look at a batch by next(iter(exact)) "
                "before the loop, or take it from a loader of its own."
            )

    def save_state(self, *given: Any) -> bool:
        """Save where it is time, between two accumulations; call it at the end of each batch's body. Returns whether it did."""
        self._refuse_call(given)
        if not self._is_save_called:
            self._say_epoch_not_asked()
        self._kept.take_note_of_use()
        self._is_save_called = self._is_body_saved = self._is_trained = True
        if self._since < self._every or self._awaits_step or not self._accelerator.sync_gradients:
            return False
        held, is_accumulating = held_gradients(self._optimizers, self._stepped)
        if is_accumulating and self._since < self._every + _MOST_WAITED:
            return False
        if self._unkept is None:
            self._unkept = unkept_schedules(self._accelerator)
        refuse_stepped(self._unkept)
        self._saved += self._since
        self._since = 0
        place = {**self._passes.place(self._batches), **self._begun.facts}
        place |= {"gradients": held, "attributes": self._attributes.changed()}
        place["random"] = loop_random_state(self._accelerator.device)
        with self._kept.saving(self._saved, place) as folder:
            self._accelerator.save_state(str(folder / "accelerate"))
        return True

    def _refuse_call(self, given: tuple[Any, ...]) -> None:
        if given:
            raise OptionError(
                f"exact.save_state() takes no folder, and was given {given[0]!r}: it saves in {self._kept.directory}, which "
                "ts.accelerate.ExactResume was given. Write exact.save_state()."
            )
        if self._pass is None:
            raise OptionError(
                "exact.save_state() stands outside `for batch in exact:`, which counts what is done, or behind a second loop over "
                "exact. Take the batches from exact, "
                "and not from the loader, and make it the last line of that loop's body."
            )

    def close(self) -> None:
        """Let go of the directory; the end of the process does so, too."""
        for hook in self._hooks:
            hook.remove()
        self._passes.end()
        self._kept.give_up()

    def _go_on(self) -> None:
        """Put the streams where they were at the save, once: the code before the loop may have drawn."""
        self._passes.stop_waiting()
        self._begun.first_batch()
        if self._place:
            set_loop_random_state(self._place["random"], self._accelerator.device)
            self._attributes.put_back(self._place.get("attributes", {}))
            put_gradients_back(self._optimizers, self._place.get("gradients", {}))
            self._place = {}

    def _refuse_never_saved(self, is_time: bool) -> None:
        if is_time and not self._is_save_called:
            raise OptionError(
                f"{self._since} batches were trained on, and exact.save_state() was never called: nothing is saved to go on from. "
                "Make it the last line of the body of `for batch in exact:`."
            )

    def _say_epoch_not_asked(self) -> None:
        if self._kept.newest is not None and self._epoch and not self._is_epoch_asked:
            sys.stderr.write(
                f"truestep: exact goes on in epoch {self._epoch}, counted from 0, and the loop has not asked for it: one that "
                f"begins at 0 trains {counted(self._epoch, 'epoch')} too many. Write for epoch in range(exact.epoch, N): where it "
                "is for epoch in range(N):\n"
            )
