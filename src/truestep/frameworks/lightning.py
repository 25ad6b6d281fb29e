# SPDX-License-Identifier: Apache-2.0
"""`ts.lightning.ExactResume`, a callback."""

import warnings
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from truestep.core.errors import OptionError, check_number
from truestep.frameworks.attributes import PlainAttributes
from truestep.frameworks.exact_resume_base import ResumeCallback
from truestep.frameworks.repeatable_loader_passes import refuse_loader
from truestep.frameworks.training_start_check import inspect_optimizers

try:
    from lightning.pytorch import Callback, LightningModule
except ModuleNotFoundError:
    from pytorch_lightning import Callback, LightningModule  # type: ignore[assignment]


class ExactResume(ResumeCallback, Callback):
    """Has a killed `trainer.fit` go on to the bits it would have ended with, from any batch.

    Write `trainer.fit(model, loader, ckpt_path=exact.checkpoint)`. Before a batch, every `every_n_batches`, it keeps all that
    `trainer.save_checkpoint` saves, and what that lacks: the random streams, the place in the pass, the streams of the loader's
    workers, and means of the epoch so far. A resumed run fetches the first batches of its epoch once more.

    Args:
        directory: holds the checkpoints, of which the newest `keep` stay. One training has one directory.
        every_n_batches: batches from one save to the next; a save waits for the end of an accumulation.
        keep: how many checkpoints stay.

    Raises:
        OptionError: for several processes, several training loaders, and data that is no DataLoader of torch's.
    """

    _called, _variable = "ts.lightning.ExactResume", "lightning.exact"
    _call = "trainer.fit(model, loader, ckpt_path=exact.checkpoint)"
    _instead = 'def on_save_checkpoint(self, checkpoint): checkpoint["mine"] = ..., and take it back in on_load_checkpoint.'

    def __init__(self, directory: str | Path, *, every_n_batches: int = 100, keep: int = 2) -> None:
        check_number("ts.lightning.ExactResume", "every_n_batches", every_n_batches, example=100, least=1)
        super().__init__(directory, keep)
        self._every, self._since, self._steps = every_n_batches, 0, 0
        self._means: dict[str, dict[str, Any]] = {}
        self._unsaid = ExitStack()
        self._saving: int | None = None
        self._loaded: int | None = None

    def setup(self, trainer: Any, pl_module: Any = None, stage: str = "") -> None:
        """Begin keyed passes, before the loader is asked for its first; say so where the class was given, which has no instance."""
        if not isinstance(self, ExactResume):
            raise OptionError(
                "ts.lightning.ExactResume was given to the Trainer as a class, which has no directory. Write "
                'exact = ts.lightning.ExactResume("runs/exact"), and callbacks=[exact].'
            )
        if stage != "fit":
            return
        path = trainer.ckpt_path
        if path is self or (isinstance(path, str | Path) and Path(path).resolve() == self._kept.directory):
            what = "the callback itself" if path is self else f"its directory {str(path)!r}"
            raise OptionError(
                f"ckpt_path is {what}, and that is no checkpoint of Lightning's. Write {self._call}, which is one, and None at the "
                "first start."
            )
        self._join_trainer(trainer.world_size, "Lightning", trainer.callbacks)
        begun, newest = self._kept.begun, self._kept.newest
        if type(pl_module).configure_model.__module__.startswith(("lightning.", "pytorch_lightning.")):
            begun.model(pl_module)  # else layers are made later
        # it saves before a batch, so a checkpoint is always of a training with more to do
        begun.length("max_epochs", trainer.max_epochs, newest.place.get("pass", 0) + 0.5)
        begun.length("max_steps", trainer.max_steps, newest.step + 0.5)
        self._begin_keyed_passes()
        self._since = 0
        if not self._place:
            self._await_pass(trainer)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Look at optimizers and schedules, before Lightning loads the state of those that were saved into them."""
        schedules = inspect_optimizers(each.scheduler for each in trainer.lr_scheduler_configs)
        self._kept.begun.made(trainer, inspect_optimizers(trainer.optimizers), schedules)
        given = {f"callback{at}": each for at, each in enumerate(trainer.callbacks) if each is not self}
        self._attributes = PlainAttributes({"self": pl_module, **given}, LightningModule())

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Mark a checkpoint as one of ours; others hold nothing of this callback's.

        A `state_dict` would have the Trainer refuse two callbacks of a kind, in words of its own, before `setup` is asked.
        """
        if self._saving is not None:
            checkpoint.setdefault("callbacks", {})[self.state_key] = {"step": self._saving}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take note that one of ours is gone on from."""
        self._loaded = state_dict["step"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse to begin anywhere else than at the newest checkpoint; begin the pass."""
        self._kept.begun.step(self._loaded, self._call)
        loaders = trainer.fit_loop._combined_loader.flattened
        refuse_loader(*loaders)
        self._kept.begun.data(loaders[0], trainer.accumulate_grad_batches)
        # it would count the epochs to the next reload from here; older checkpoints don't say
        if "reloaded" in self._place:
            trainer.fit_loop._last_train_dl_reload_epoch = self._place["reloaded"]
        # Lightning began it before it knew the epoch, or, where code asks early how many steps there are, before `setup`
        if self._place or not self._passes.has_begun(trainer.current_epoch):
            self._await_pass(trainer)
            iter(trainer.fit_loop._data_fetcher)
        self._passes.stop_waiting()
        self._unsaid.enter_context(warnings.catch_warnings())
        # Lightning warns that the loader can't be gone on in, which it can here
        warnings.filterwarnings(
            "ignore", "You're resuming from a checkpoint that ended before the epoch ended"
        )

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the pass that comes for the one that is trained on."""
        if not self._passes.has_begun(trainer.current_epoch):
            self._await_pass(trainer)

    def _await_pass(self, trainer: Any) -> None:
        self._passes.await_pass(trainer.current_epoch, lambda: _training_loader(trainer))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Put the streams back before the first batch of a resumed run; else save where it is time."""
        self._unsaid.close()
        self._passes.stop_waiting()
        loop = trainer.fit_loop.epoch_loop
        if self._place:
            self._restore_at_first_batch(pl_module.device, partial(_steps_of_schedule, trainer))
            trainer.callback_metrics.update(self._place["metrics"])
            # Lightning counts the batch before once more on every restart that is not right behind one
            loop._batches_that_stepped = self._place["logged"]
            # it would leave out a plateau schedule's step at the epoch's end, for want of the metrics that are kept here
            trainer.fit_loop._restarting = False
            self._means, self._place = self._place["means"], {}
        else:
            self._merge_means(loop)
            if self._since >= self._every and trainer.global_step != self._steps:
                self._save_trainer_checkpoint(trainer, pl_module, batch_idx)
        self._steps = trainer.global_step
        self._since += 1

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the means of the epoch the part from before the resume."""
        self._merge_means(trainer.fit_loop.epoch_loop)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Say so where nothing was saved."""
        self._report_never_saved(f"every_n_batches={self._every}", trainer.global_step, self._since // 2)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException | None = None) -> None:
        """Let go of the directory."""
        if exception is None:  # the class was given, and setup has refused it
            return
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Let go of the directory."""
        if stage == "fit":
            self._unsaid.close()
            self._release_directory()

    def _save_trainer_checkpoint(self, trainer: Any, pl_module: Any, batch_idx: int) -> None:
        loop = trainer.fit_loop.epoch_loop
        means = {
            name: {
                key: vars(each)[key].cpu() for key in ("value", "cumulated_batch_size") if key in vars(each)
            }
            for name, each in loop._results.items()
            if each.is_tensor and each.meta.on_epoch and batch_idx
        }
        place = self._current_place(
            batch_idx, pl_module.device, means=means, logged=loop._batches_that_stepped,
            metrics={name: value.detach().cpu() for name, value in trainer.callback_metrics.items()},
            reloaded=trainer.fit_loop._last_train_dl_reload_epoch,
        )  # fmt: skip
        self._saving = trainer.global_step
        try:
            with self._kept.scratch() as folder:
                # said, as Lightning prints a line where it is left open
                trainer.save_checkpoint(Path(folder) / "lightning.ckpt", weights_only=False)
                self._kept.keep(Path(folder) / "lightning.ckpt", trainer.global_step, place)
        finally:
            self._saving = None
        self._since = 0

    def _merge_means(self, loop: Any) -> None:
        """Add what the epoch had summed before the save to what was logged since; Lightning keeps none of it."""
        for name, before in self._means.items():
            if (now := loop._results.get(name)) is None:
                continue
            if now.meta.is_max_reduction or now.meta.is_min_reduction:
                now.value = now.meta.reduce_fx(now.value, before["value"].to(now.value.device))
            else:
                for key, value in before.items():
                    setattr(now, key, value.to(now.value.device) + getattr(now, key))
        self._means = {}


def _steps_of_schedule(trainer: Any, schedule: Any) -> float | None:
    """Return how many steps a schedule is to make in the whole training."""
    for each in trainer.lr_scheduler_configs:
        if each.scheduler is schedule and trainer.lightning_module.automatic_optimization:
            with suppress(Exception):  # of a changing accumulation it is not told
                updates = trainer.estimated_stepping_batches
                return float((trainer.max_epochs if each.interval == "epoch" else updates) // each.frequency)
    return None


def _training_loader(trainer: Any) -> Any:
    combined = trainer.fit_loop._combined_loader
    # on_train_start refuses the others: Lightning's own teardown hides what is raised where its loader is begun
    is_right = combined is not None and getattr(combined.flattened[0], "in_order", True)
    return combined.flattened[0] if is_right else None
