# SPDX-License-Identifier: Apache-2.0
"""`ts.accelerate.ExactResume`: a prepared loader that goes on where a killed loop stopped, and saves between two batches."""

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import GeneratorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset

from truestep.core.errors import OptionError, check_number
from truestep.core.missing_attribute_hints import NeverPickled
from truestep.core.text_formatting import a_type, plural
from truestep.frameworks.attributes import PlainAttributes
from truestep.frameworks.exact_resume_base import ResumableTraining
from truestep.frameworks.repeatable_loader_passes import loader_order_key, refuse_processes
from truestep.frameworks.training_start_check import inspect_optimizers, write_to_stderr

if TYPE_CHECKING:
    from accelerate import Accelerator

_LOOP = "Write for batch in exact:, where it is for batch in loader:"
_CALL = "ts.accelerate.ExactResume(accelerator, loader, directory)"
_PREPARED = (
    "net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data_set, batch_size=32, shuffle=True)) first, "
    f"and then {_CALL}"
)
_MOST_WAITED = 64  # batches that a save waits for the end of an accumulation by hand


class ExactResume(ResumableTraining, NeverPickled):
    """Has a killed loop with Accelerate go on to the bits it would have ended with, from any batch.

    Write, behind `accelerator.prepare`: `exact = ts.accelerate.ExactResume(accelerator, loader, directory)`, and loop `for epoch in
    range(exact.epoch, 20): for batch in exact:`. Between two batches, every `every_n_batches`, it keeps all that
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
        _refuse_unprepared(accelerator, loader)
        refuse_processes(accelerator.num_processes, "Accelerate")
        # Accelerate's loader drops what is done: of a stream it takes a pass with nothing left for an error
        super().__init__(directory, keep, lambda *_: 0)
        self._accelerator, self._loader, self._every = accelerator, loader, every_n_batches
        self._epoch = self._batches = self._since = self._saved = self._steps_elsewhere = 0
        self._is_epoch_asked = False
        self._pass: SimpleNamespace | None = None
        """That is gone through: how many batches came since the save before it, and whether it is trained on."""
        self._used: dict[int, dict[int, tuple[Any, int]]] = {}  # by optimizer that has stepped in this body
        self._report_at_end()
        self._optimizers = [each for each in _prepared_optimizers(accelerator) if isinstance(each, Optimizer)]
        mine = weakref.ref(self)

        def note_step_of_instance(optimizer: Optimizer, *_: Any) -> None:
            if (exact := mine()) is not None:
                exact._note_optimizer_step(optimizer)

        self._hooks = [each.register_step_post_hook(note_step_of_instance) for each in self._optimizers]
        self._load_state()
        self._rates = self._current_learning_rates()

    def _report_at_end(self) -> None:
        self._use["in_vain"] = (
            f"exact.epoch is {self._epoch}, and no batch was taken from exact: range(exact.epoch, N) is empty for an N of at "
            f"most {self._epoch}, so nothing was trained. Write a larger N, or give ExactResume an empty directory."
            if self._epoch
            else f"no batch was taken from exact, so nothing was saved in {self._kept.directory}. {_LOOP}"
        )

    def _load_state(self) -> None:
        begun, accelerator = self._kept.begun, self._accelerator
        models = getattr(accelerator, "_models", ())
        schedules = (*getattr(accelerator, "_schedulers", ()), *getattr(accelerator, "_custom_objects", ()))
        begun.made(
            accelerator, inspect_optimizers(_prepared_optimizers(accelerator)), inspect_optimizers(schedules)
        )
        begun.model(*models)
        self._attributes = PlainAttributes({f"model{number}": each for number, each in enumerate(models)})
        begun.data(self._loader, accelerator.gradient_accumulation_steps)
        self._begin_keyed_passes()  # before Accelerate loads the streams, and the seed with them
        if (path := self._kept.newest.path) is not None:
            if not path.is_dir():
                raise OptionError(
                    f"The newest checkpoint in {self._kept.directory} holds no file of Accelerate's, so no weights to go on from. "
                    "Give ExactResume an empty directory."
                )
            accelerator.load_state(str(path))
            _continue_checkpoint_names(accelerator)
            self._epoch, self._saved = self._place["pass"], self._kept.newest.step

    def _note_optimizer_step(self, optimizer: Optimizer) -> None:
        if self._pass is not None:
            self._note_pass_is_trained()
            # it asks each gradient, so only where a save is near; they are held, lest another takes the place of one in memory
            gradients = _gradients_of(optimizer).values() if self._since >= self._every else ()
            self._used[id(optimizer)] = {id(each): (each, each._version) for each in gradients}
            return
        given = self._accelerator.gradient_state.active_dataloader
        self._steps_elsewhere += given is not None and loader_order_key(given) == loader_order_key(
            self._loader
        )
        if self._steps_elsewhere >= self._every and not self._use["used"]:
            raise OptionError(
                f"{plural(self._steps_elsewhere, 'step')} took their batches from the loader, and not from the ExactResume of "
                f"{self._kept.directory}: nothing is saved to go on from. {_LOOP}"
            )

    @property
    def epoch(self) -> int:
        """The pass that comes next, or is under way."""
        if not self._is_epoch_asked:
            self._report_at_end()
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
        self._end_pass(self._pass)  # somebody keeps an iterator, of which a batch was looked at
        mine = self._pass = SimpleNamespace(since=self._since, is_trained=False)
        done, self._batches = self._place.get("batches", 0), 0
        self._passes.await_pass(self._epoch, lambda: self._loader)
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(self._epoch)
        try:
            for batch in self._loader:
                self._batches += 1
                if self._batches <= done:
                    continue
                if self._batches == done + 1:
                    self._begin_pass()
                    self._report_wrong_counts(done)
                self._since += 1
                self._used.clear()
                yield batch
                self._end_loop_body(mine)
            if self._batches == done:  # saved behind the last batch: a pass of one, or by an earlier build
                self._begin_pass()
                self._report_wrong_counts(0)
                self._report_nothing_left(done)
            self._note_pass_is_trained()
        finally:
            self._end_pass(mine)

    def _begin_pass(self) -> None:
        """Put the streams where they were at the save: the code before the loop may have drawn."""
        self._passes.stop_waiting()
        if self._place:
            self._restore_at_first_batch(self._accelerator.device)
            for name, gradient in self._place.get("gradients", {}).items():
                optimizer, parameter = map(int, name.split("."))
                held = _parameters_of(self._optimizers[optimizer])[parameter]
                held.grad = gradient.to(held.device, copy=True)

    def _report_wrong_counts(self, done: int) -> None:
        if self._place and self._epoch and not self._is_epoch_asked:
            write_to_stderr(
                f"exact goes on in epoch {self._epoch}, counted from 0, and the loop has not asked for it: one that "
                f"begins at 0 trains {plural(self._epoch, 'epoch')} too many. Write for epoch in range(exact.epoch, N): where it "
                "is for epoch in range(N):"
            )
        if done and _is_counted_from_zero(done):
            write_to_stderr(
                f"enumerate(exact) counts the batches of exact from its own top, and this epoch goes on behind batch {done}. "
                "Write enumerate(exact, exact.batch)."
            )

    def _report_nothing_left(self, done: int) -> None:
        if done:
            write_to_stderr(
                f"all {plural(done, 'batch', 'batches')} of epoch {self._epoch}, counted from 0, were done at that save, so exact "
                "gives none, and what the loop sums up is empty. Keep it by accelerator.register_for_checkpointing."
            )

    def _note_pass_is_trained(self) -> None:
        """Take note that the pass is trained on, and not looked at."""
        assert self._pass is not None
        self._pass.is_trained, self._place = True, {}
        self._use["used"] |= self._kept.newest.path is not None
        words = self._never_saved_message(f"every_n_batches={self._every}", self._since // 2)
        self._use["in_vain"] = words if self._since < self._every else None  # where it waits for a step

    def _end_pass(self, mine: SimpleNamespace | None) -> None:
        """End a pass, if it is the one that is gone through: as trained on, or as a look at a batch."""
        if mine is None or mine is not self._pass:
            return
        if mine.is_trained:
            self._epoch += 1
        else:
            self._since = mine.since
        self._pass = None

    def _end_loop_body(self, mine: SimpleNamespace) -> None:
        """Save where it is time, between two accumulations."""
        if self._pass is not mine:
            raise OptionError(
                "A second loop over exact began within this one, so where it stands is lost. Look at a batch by next(iter(exact)) "
                "before the loop, or take it from a loader of its own."
            )
        if not self._optimizers:  # others don't tell of their steps
            self._note_pass_is_trained()
        if self._since < self._every or not self._accelerator.sync_gradients:
            return
        # a loop that went on behind the last batch would begin with none, and miss what it has summed up: the next one saves
        state = self._accelerator.gradient_state
        is_last = state.end_of_dataloader and loader_order_key(state.active_dataloader) == loader_order_key(
            self._loader
        )
        if is_last and self._batches > 1 and self._since < self._every + _MOST_WAITED:
            return
        held, is_accumulating = self._held_gradients()
        if is_accumulating and self._since < self._every + _MOST_WAITED:
            return
        self._refuse_unkept_schedule()
        self._saved, self._since = self._saved + self._since, 0
        place = self._current_place(self._batches, self._accelerator.device, gradients=held)
        with self._kept.scratch() as folder:
            theirs = Path(folder) / "accelerate"
            _save_state_in(self._accelerator, theirs)
            self._kept.keep(theirs, self._saved, place)
        self._use["used"] = True

    def _held_gradients(self) -> tuple[dict[str, Tensor], bool]:
        """Return gradients that no step has used, and whether this body is one within an accumulation, or trains nothing.

        One that accumulates by hand goes on with them.
        """
        held, is_accumulating = {}, bool(self._optimizers) and not self._used
        for place, optimizer in enumerate(self._optimizers):
            used = self._used.get(id(optimizer), {})
            for number, gradient in _gradients_of(optimizer).items():
                _, version = used.get(id(gradient), (None, None))
                if version != gradient._version and bool(gradient.any()):
                    held[f"{place}.{number}"] = gradient.detach()
                    is_accumulating |= id(optimizer) not in self._used
        return held, is_accumulating

    def _current_learning_rates(self) -> list[float]:
        return [float(group.get("lr", 0)) for each in self._optimizers for group in each.param_groups]

    def _refuse_unkept_schedule(self) -> None:
        """Raise an OptionError where a schedule moves the rate that `accelerator.save_state` does not keep."""
        registered = getattr(self._accelerator, "_custom_objects", ())
        inside = [held for each in registered for held in (each, *getattr(each, "__dict__", {}).values())]
        kept = [
            *getattr(self._accelerator, "_schedulers", ()),
            *(each for each in inside if isinstance(each, LRScheduler)),
        ]
        # which a schedule has set
        is_there = any("initial_lr" in group for each in self._optimizers for group in each.param_groups)
        if is_there and not kept and self._current_learning_rates() != self._rates:
            raise OptionError(
                "A schedule moves the rate of a prepared optimizer, and accelerator.save_state does not keep it: after "
                "a kill it would begin anew, with other rates. Write accelerator.register_for_checkpointing(schedule), or "
                f"schedule = accelerator.prepare(schedule), before {_CALL}."
            )

    def close(self) -> None:
        """Let go of the directory; the end of the process does so, too."""
        for hook in self._hooks:
            hook.remove()
        self._release_directory()


def _refuse_unprepared(accelerator: Any, loader: Any) -> None:
    """Raise an OptionError for what is no accelerator or loader, and a model or an optimizer that was not prepared."""
    if not hasattr(accelerator, "prepare"):
        raise OptionError(
            f"ts.accelerate.ExactResume was given {a_type(accelerator)} where the Accelerator stands. Write {_CALL}."
        )
    # a wrapper of a DataLoader that hands on its attributes is gone through as one
    parts = [getattr(loader, name, None) for name in ("batch_sampler", "sampler")]
    is_stream = isinstance(getattr(loader, "dataset", None), IterableDataset)
    is_one = hasattr(loader, "__iter__") and (is_stream or any(each is not None for each in parts))
    if not isinstance(loader, DataLoader) and not is_one:
        raise OptionError(
            f"ts.accelerate.ExactResume was given {a_type(loader)} where the training loader that accelerator.prepare returned "
            f"stands. Write {_PREPARED}."
        )
    for name, kind, lost in (
        ("_models", "model", "weights"),
        ("_optimizers", "optimizer", "moments or rate"),
    ):
        if not getattr(accelerator, name, True):
            raise OptionError(
                f"The accelerator has prepared no {kind}, so its save_state would save no {lost}. Write {_PREPARED}."
            )
    is_theirs = type(loader).__module__.startswith("accelerate.")  # one without its first batches has no mark
    if not is_theirs and not getattr(loader, "_is_accelerate_prepared", False):
        write_to_stderr(
            "accelerator.prepare has not returned the loader that ts.accelerate.ExactResume was given, so its batches "
            "stay on the CPU, and no accumulation ends with an epoch. Write loader = accelerator.prepare(loader) first."
        )


def _save_state_in(accelerator: Any, folder: Path) -> None:
    """Save all that `accelerator.save_state` saves into a folder of ours; the user's numbered ones stay as they are."""

    def refuse_without_weights(_: Any, weights: list[Any], place: str) -> None:
        # the user's hooks were called before: one may have taken the weights out, and written files of its own
        if not any(weights) and not any(
            each.stat().st_size for each in Path(place).rglob("*") if each.is_file()
        ):
            raise OptionError(
                "accelerator.save_state was left no weights to save, so a kill would lose all that is trained. Let the function "
                "that accelerator.register_save_state_pre_hook was given write those that it takes out, or leave them in."
            )

    named, before = accelerator.project_configuration, vars(accelerator.project_configuration).copy()
    hook = accelerator.register_save_state_pre_hook(refuse_without_weights)
    # automatic naming would write into the user's project, and a limit delete there, whatever folder is given
    named.automatic_checkpoint_naming = False
    try:
        accelerator.save_state(str(folder))
    finally:
        hook.remove()
        vars(named).update(before)  # the number of the user's next one, too


def _continue_checkpoint_names(accelerator: Any) -> None:
    """Have the user's own `save_state` count on behind what the killed training has named; at 0 it would raise."""
    named = accelerator.project_configuration
    folder = Path(accelerator.project_dir or "") / "checkpoints"
    if named.automatic_checkpoint_naming and folder.is_dir():
        numbers = [each.name.rpartition("_")[2] for each in folder.iterdir()]
        named.iteration = max(
            named.iteration, 1 + max((int(each) for each in numbers if each.isdecimal()), default=-1)
        )


def _prepared_optimizers(accelerator: Any) -> list[Any]:
    """Return the optimizers that were given to `accelerator.prepare`, without what it puts around them."""
    return [getattr(each, "optimizer", each) for each in getattr(accelerator, "_optimizers", ())]


def _parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _gradients_of(optimizer: Optimizer) -> dict[int, Tensor]:
    """Return the gradients of an optimizer's parameters, by number."""
    gradients = enumerate(each.grad for each in _parameters_of(optimizer))
    return {number: each for number, each in gradients if each is not None and not each.is_sparse}


def _is_counted_from_zero(done: int) -> bool:
    """Whether `enumerate` goes through the running pass and counts from its own top."""
    frames, frame = set(), sys._getframe()
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        frames.add(id(frame))
    living = gc.get_objects()
    # a pass, and a progress bar around it, is a generator that is running now
    inner = {id(each) for each in living if type(each) is GeneratorType and id(each.gi_frame) in frames}
    counting = [each for each in living if type(each) is enumerate and each.__reduce__()[1][1] != done]
    return any(id(part) in inner for each in counting for part in gc.get_referents(each))
