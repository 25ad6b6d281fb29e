# SPDX-License-Identifier: Apache-2.0
"""`ts.transformers.ExactResume`, a callback of the Trainer."""

import sys
import weakref
from pathlib import Path
from traceback import walk_stack
from typing import Any, ClassVar

from transformers import TrainerCallback

from truestep.core.errors import OptionError
from truestep.frameworks.attributes import PlainAttributes
from truestep.frameworks.exact_resume_base import ResumeCallback
from truestep.frameworks.training_start_check import inspect_optimizers, optimizers_from_options


class ExactResume(ResumeCallback, TrainerCallback):
    """Has a killed `trainer.train` go on to the bits it would have ended with, from any step that it saved.

    Write `trainer.train(resume_from_checkpoint=exact.checkpoint)`. Each time the Trainer saves (`save_strategy`, `save_steps`) it
    keeps the whole folder and what that lacks: the place in the pass, and the random streams that the data and the loader's workers
    draw from. A resumed run fetches the first batches of its epoch once more.

    Args:
        directory: holds the checkpoints, of which the newest `keep` stay. One training has one directory.
        keep: how many checkpoints stay.

    Raises:
        OptionError: for several processes, data that is no DataLoader of torch's or has no length, and arguments of the Trainer
            under which a step can't be gone on from.
    """

    _called, _variable = "ts.transformers.ExactResume", "transformers.exact"
    _call = "trainer.train(resume_from_checkpoint=exact.checkpoint)"

    _latest: ClassVar[tuple["weakref.ref[Any]", "weakref.ref[ExactResume]"] | None] = None
    """The state of the training that began last, and who began with it."""

    def __init__(self, directory: str | Path, *, keep: int = 2) -> None:
        super().__init__(directory, keep, self._num_skipped_batches)
        self._number = 0
        self._whole_loader: Any = None
        self._optimizers, self._schedules = inspect_optimizers([]), inspect_optimizers([])

    def __fspath__(self) -> str:
        """Refuse to be the path of a checkpoint."""
        raise OptionError(
            f"ts.transformers.ExactResume is a callback, and was given as a path. Write callbacks=[exact], and {self._call}."
        )

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at what the code has made before the Trainer loads into it."""
        self._models = (kwargs["model"],) if kwargs.get("model") is not None else ()
        self._optimizers = inspect_optimizers(filter(None, [kwargs.get("optimizer")]))
        self._schedules = inspect_optimizers([kwargs.get("lr_scheduler")])

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin keyed passes."""
        # a Trainer tells its callbacks of nothing but the state that they share: a second one is seen by that
        latest, ExactResume._latest = ExactResume._latest, (weakref.ref(state), weakref.ref(self))
        is_second = latest is not None and latest[0]() is state
        self._join_trainer(
            args.world_size, "the Trainer", [latest[1](), self] if latest and is_second else [self]
        )
        begun, loader, schedule = self._kept.begun, kwargs.get("train_dataloader"), kwargs.get("lr_scheduler")
        _refuse_arguments(args, loader)
        begun.step(state.global_step, self._call)
        begun.model(*self._models)
        strategy = str(getattr(args, "train_sampling_strategy", None))
        begun.data(loader, args.gradient_accumulation_steps, strategy)
        option = "max_steps" if args.max_steps > 0 else "num_train_epochs"
        begun.length(option, state.max_steps, self._kept.newest.step, getattr(args, option))
        # the state of what it has made is loaded by now: what the arguments say
        optimizers = self._optimizers or optimizers_from_options(
            args, str(getattr(args.optim, "value", args.optim))
        )
        begun.made(args, optimizers, self._schedules or inspect_optimizers([schedule]))
        self._outermost = getattr(schedule, "scheduler", schedule)
        beside = {f"callback{at}": each for at, each in enumerate(self._find_callbacks()) if each is not self}
        # the Trainer brings the state of its own ones back under an option alone: the count of its early stopping, say
        stateful = {name: each for name, each in beside.items() if callable(getattr(each, "state", None))}
        self._attributes = PlainAttributes({"model": kwargs["model"], **beside}, stateful=stateful)
        self._begin_keyed_passes()

    def _find_callbacks(self) -> list[Any]:
        """Return all callbacks of the Trainer, by its handler, which calls this one: a Trainer tells none of the others."""
        running = (frame.f_locals.get("self") for frame, _ in walk_stack(sys._getframe(1)))
        lists = (getattr(each, "callbacks", None) for each in running)
        return next(
            (each for each in lists if isinstance(each, list) and any(one is self for one in each)), []
        )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take passes over the training's batches before the first step for the one that is trained on."""
        loader = kwargs["train_dataloader"]
        self._number, self._whole_loader = int(state.epoch or 0), getattr(loader, "base_dataloader", loader)
        self._passes.is_over = 0 < state.max_steps <= state.global_step
        self._passes.await_pass(self._number, lambda: loader)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take no other for it; the Trainer has put the streams back."""
        self._passes.stop_waiting()
        if self._place:
            self._restore_at_first_batch(
                None, lambda each: state.max_steps if each is self._outermost else None
            )
            self._place = {}

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep what the Trainer has just saved; at the last step it does so whatever `save_steps` says."""
        done = state.epoch or 0.0
        batches = round((done - self._number) * len(kwargs["train_dataloader"]))
        theirs = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        self._kept.keep(theirs, state.global_step, self._current_place(batches, None))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let go of the directory, and say so where nothing was saved."""
        if args.save_strategy == "steps":
            self._report_never_saved(
                f"save_steps={args.save_steps}", state.global_step, state.global_step // 2
            )
        self._release_directory()

    def _num_skipped_batches(self, loader: Any, batches: int) -> int | None:
        """Return what is dropped here; Accelerate's sampler, which would not fetch the batches it leaves out, leaves none out."""
        if loader is self._whole_loader:
            return None  # the Trainer goes on with one that it makes for that
        for sampler in (loader.batch_sampler, loader.sampler):
            if type(sampler).__name__ == "SkipBatchSampler":
                sampler.skip_batches = 0
                return batches
        return 0  # of a stream Accelerate fetches and drops them


def _refuse_arguments(args: Any, loader: Any) -> None:
    wrong = {
        "ignore_data_skip=True begins the epoch from its top after a resume. Leave it out.": args.ignore_data_skip,
        "save_only_model=True saves no optimizer. Leave it out.": args.save_only_model,
        'save_strategy="no" saves nothing to go on from. Write save_strategy="steps", save_steps=100.': (
            args.save_strategy == "no"
        ),
        'eval_strategy="epoch" with save_strategy="steps" loses the evaluation behind a save at an epoch\'s last step. Give both '
        "the same strategy.": args.eval_strategy == "epoch" and args.save_strategy == "steps",
    }
    for words, is_so in wrong.items():
        if is_so:
            raise OptionError(f"ts.transformers.ExactResume can't go on exactly: {words}")
    try:
        len(loader)
    except TypeError as error:
        raise OptionError(
            "The training data has no length, and the Trainer counts its epochs by max_steps: its place in the data can't be "
            "told. Give the IterableDataset a __len__."
        ) from error
