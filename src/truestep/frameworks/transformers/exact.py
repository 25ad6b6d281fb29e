# SPDX-License-Identifier: Apache-2.0
"""`ts.transformers.ExactResume`, a callback of the Trainer."""

import weakref
from pathlib import Path
from typing import Any, ClassVar

from transformers import TrainerCallback

from truestep.core.errors import OptionError
from truestep.core.held import HelpfulAttributes
from truestep.frameworks.attributes import PlainAttributes
from truestep.frameworks.beginning import (
    Beginning,
    made_by,
    made_optimizers,
    made_schedules,
    refuse_trainer_of,
    refuse_two,
)
from truestep.frameworks.kept import KeptCheckpoints
from truestep.frameworks.passes import KeyedPasses, refuse_processes

_CALL = "trainer.train(resume_from_checkpoint=exact.checkpoint)"


class ExactResume(HelpfulAttributes, TrainerCallback):
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

    state_key = "ExactResume"  # Lightning's Trainer asks for it before the hook that refuses it

    _newest: ClassVar[tuple["weakref.ref[Any]", "weakref.ref[ExactResume]"] | None] = None
    """The state of the training that began last, and who began with it."""

    def __init__(self, directory: str | Path, *, keep: int = 2) -> None:
        self._kept = KeptCheckpoints(directory, keep)
        self._begun = Beginning(self._kept)
        self._passes, self._number = KeyedPasses(self._skipped), 0
        self._whole_loader: Any = None
        self._place: dict[str, Any] = {}
        self._attributes = PlainAttributes({})
        self._model: list[Any] = []
        self._optimizers, self._schedules = made_optimizers([]), made_schedules([])

    @property
    def checkpoint(self) -> str | None:
        """The path for `trainer.train(resume_from_checkpoint=...)`; None where nothing is saved yet."""
        path = self._kept.path_for(_CALL)
        self._begun.model(*self._model)
        return path

    def __fspath__(self) -> str:
        """Refuse to be the path of a checkpoint."""
        raise OptionError(
            f"ts.transformers.ExactResume is a callback, and was given as a path. Write callbacks=[exact], and {_CALL}."
        )

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at what the code has made before the Trainer loads into it."""
        self._model = [kwargs["model"]] if kwargs.get("model") is not None else []
        self._optimizers = made_optimizers(filter(None, [kwargs.get("optimizer")]))
        self._schedules = made_schedules([kwargs.get("lr_scheduler")])

    def setup(self, *_given: Any, **_named: Any) -> None:
        """Refuse the Trainer of Lightning, which calls this first: its hooks have other names."""
        refuse_trainer_of("Lightning", "transformers", "transformers' Trainer")

    def on_exception(self, *_given: Any, **_named: Any) -> None:
        """Do nothing: Lightning's Trainer calls this behind the refusal."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin keyed passes."""
        self._refuse_other_of(state)
        self._kept.take_note_of_use()
        refuse_processes(args.world_size, "the Trainer")
        _refuse_arguments(args, kwargs.get("train_dataloader"))
        self._begun.step(state.global_step, _CALL)
        self._begun.model(*self._model)
        strategy = str(getattr(args, "train_sampling_strategy", None))
        self._begun.data(kwargs.get("train_dataloader"), args.gradient_accumulation_steps, strategy)
        option = "max_steps" if args.max_steps > 0 else "num_train_epochs"
        self._begun.length(option, state.max_steps, self._kept.step, getattr(args, option))
        # the state of what it has made is loaded by now: what the arguments say
        optimizers = self._optimizers or made_by(args, str(getattr(args.optim, "value", args.optim)))
        self._begun.made(args, optimizers, self._schedules or made_schedules([kwargs.get("lr_scheduler")]))
        self._place = self._kept.place
        self._attributes = PlainAttributes({"model": kwargs["model"]})
        seeds = self._begun.seed()
        outermost = getattr(kwargs.get("lr_scheduler"), "scheduler", kwargs.get("lr_scheduler"))
        self._begun.say_going_on(lambda each: state.max_steps if each is outermost else None)
        self._passes.begin(self._kept.place, seeds)

    def _refuse_other_of(self, state: Any) -> None:
        """Refuse a second one in a Trainer, which tells its callbacks of nothing but the state that they share."""
        newest, ExactResume._newest = ExactResume._newest, (weakref.ref(state), weakref.ref(self))
        if newest is not None and newest[0]() is state:
            refuse_two([newest[1](), self])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take passes over the training's batches before the first step for the one that is trained on."""
        loader = kwargs["train_dataloader"]
        self._number, self._whole_loader = int(state.epoch or 0), getattr(loader, "base_dataloader", loader)
        self._passes.await_pass(self._number, lambda: loader)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take no other for it."""
        self._passes.stop_waiting()
        self._begun.first_batch()
        self._attributes.put_back(self._place.get("attributes", {}))
        self._place = {}

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep what the Trainer has just saved; at the last step it does so whatever `save_steps` says."""
        done = state.epoch or 0.0
        batches = round((done - self._number) * len(kwargs["train_dataloader"]))
        place = {**self._passes.place(batches), **self._begun.facts, "attributes": self._attributes.changed()}
        self._kept.keep(
            Path(str(args.output_dir)) / f"checkpoint-{state.global_step}", state.global_step, place
        )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let go of the directory, and say so where nothing was saved."""
        if args.save_strategy == "steps":
            self._kept.say_never_saved(
                f"save_steps={args.save_steps}", state.global_step, state.global_step // 2
            )
        self._passes.end()
        self._kept.give_up()

    def _skipped(self, loader: Any, batches: int) -> int | None:
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
