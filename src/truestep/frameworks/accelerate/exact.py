# SPDX-License-Identifier: Apache-2.0
"""`ts.accelerate.ExactResume`: a prepared loader that goes on where a killed loop stopped, and `save_state` with what it lacks."""

import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from truestep.core.errors import OptionError, check_number
from truestep.core.held import HelpfulAttributes
from truestep.core.wording import counted
from truestep.frameworks.accelerate.prepared import (
    prepared_optimizers,
    refuse_stepped,
    refuse_unprepared,
    unkept_schedules,
)
from truestep.frameworks.beginning import Beginning, made_optimizers, made_schedules
from truestep.frameworks.kept import KeptCheckpoints
from truestep.frameworks.passes import KeyedPasses, refuse_processes
from truestep.run.loop_random import loop_random_state, set_loop_random_state

if TYPE_CHECKING:
    from accelerate import Accelerator


class ExactResume(HelpfulAttributes):
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
        self._accelerator, self._loader, self._every = accelerator, loader, every_n_batches
        self._kept = KeptCheckpoints(directory, keep)
        self._begun = Beginning(self._kept)
        # Accelerate's loader drops what is done: of a stream it takes a pass with nothing left for an error
        self._passes = KeyedPasses(lambda *_: 0)
        self._epoch = self._batches = self._since = self._saved = 0
        self._is_epoch_asked = self._is_in_pass = self._is_trained = False
        self._is_save_called = self._is_body_saved = False
        self._place: dict[str, Any] = {}
        self._unkept: list[Any] | None = None
        self._watch_steps()
        self._load_state()

    def _load_state(self) -> None:
        begun, accelerator = self._begun, self._accelerator
        schedules = (*getattr(accelerator, "_schedulers", ()), *getattr(accelerator, "_custom_objects", ()))
        begun.made(accelerator, made_optimizers(prepared_optimizers(accelerator)), made_schedules(schedules))
        begun.model(*getattr(accelerator, "_models", ()))
        begun.data(self._loader, accelerator.gradient_accumulation_steps)
        begun.seed()  # before Accelerate loads the streams
        if (newest := self._kept.newest) is not None:
            accelerator.load_state(str(newest.path))
            self._place, self._epoch, self._saved = newest.place, newest.place["pass"], newest.step
        begun.say_going_on()
        self._passes.begin(self._place)

    def _watch_steps(self) -> None:
        """Have each prepared optimizer of torch's tell of its steps, as long as this lives."""
        mine = weakref.ref(self)

        def tell(*_: Any) -> None:
            if (exact := mine()) is not None:
                exact._take_note_of_step()

        optimizers = [each for each in prepared_optimizers(self._accelerator) if isinstance(each, Optimizer)]
        self._hooks = [each.register_step_pre_hook(tell) for each in optimizers]
        self._awaits_step = bool(optimizers)

    def _take_note_of_step(self) -> None:
        if self._is_in_pass and self._is_body_saved:
            raise OptionError(
                "An optimizer steps behind exact.save_state() in the body of `for batch in exact:`, so the batch would count as "
                "done before it was trained on, and a killed run would leave it out. Make exact.save_state() the last line of the "
                "body."
            )
        self._awaits_step = False

    @property
    def epoch(self) -> int:
        """The pass that comes next, or is under way."""
        self._is_epoch_asked = True
        return self._epoch

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a pass, of the first one after a resume those that are left."""
        place, since, is_whole = self._place, self._since, False
        self._batches, self._is_in_pass, self._is_trained = 0, True, False
        self._passes.await_pass(self._epoch, lambda: self._loader)
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(self._epoch)
        try:
            for batch in self._loader:
                self._batches += 1
                if self._batches > place.get("batches", 0):
                    self._go_on()
                    self._refuse_never_saved(self._since >= self._every)
                    self._since += 1
                    self._is_body_saved = False
                    yield batch
            self._go_on()
            self._refuse_never_saved(self._since > 0)
            is_whole, self._awaits_step = True, False
        finally:
            self._is_in_pass = False
            if is_whole or self._is_trained or self._since > since + 1:
                self._epoch += 1
            else:  # somebody looked at a batch
                self._place, self._since = place, since

    def save_state(self, *given: Any) -> bool:
        """Save where it is time, between two accumulations; call it at the end of each batch's body. Returns whether it did."""
        if given:
            raise OptionError(
                f"exact.save_state() takes no folder, and was given {given[0]!r}: it saves in {self._kept.directory}, which "
                "ts.accelerate.ExactResume was given. Write exact.save_state()."
            )
        if not self._is_in_pass:
            raise OptionError(
                "exact.save_state() stands outside `for batch in exact:`, which counts what is done. Take the batches from exact, "
                "and not from the loader, and make it the last line of that loop's body."
            )
        if not self._is_save_called:
            self._say_epoch_not_asked()
        self._is_save_called = self._is_body_saved = self._is_trained = True
        if self._since < self._every or self._awaits_step or not self._accelerator.sync_gradients:
            return False
        if self._unkept is None:
            self._unkept = unkept_schedules(self._accelerator)
        refuse_stepped(self._unkept)
        self._saved += self._since
        self._since = 0
        place = {**self._passes.place(self._batches), **self._begun.facts}
        place["random"] = loop_random_state(self._accelerator.device)
        with self._kept.saving(self._saved, place) as folder:
            self._accelerator.save_state(str(folder / "accelerate"))
        return True

    def close(self) -> None:
        """Let go of the directory; the end of the process does so, too."""
        for hook in self._hooks:
            hook.remove()
        self._passes.end()
        self._kept.give_up()

    def _go_on(self) -> None:
        """Put the streams where they were at the save, once: the code before the loop may have drawn."""
        self._passes.stop_waiting()
        if self._place:
            set_loop_random_state(self._place["random"], self._accelerator.device)
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
