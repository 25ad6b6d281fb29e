# SPDX-License-Identifier: Apache-2.0
"""A run: where a training's learners, data, loop, directory and signals meet."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import torch

from truestep.core.argument_errors import methods_raise_option_errors, raises_option_errors
from truestep.core.errors import DataError
from truestep.core.metric_direction import MEASURED
from truestep.core.missing_attribute_hints import NeverPickled, NotIterableObject, SealedAttributes
from truestep.core.property_call_errors import refuse_property_calls
from truestep.core.random_streams import random_key
from truestep.core.result_display import RenderableType, Shown, facts_table
from truestep.core.schedule_units import ScheduleFactory
from truestep.core.text_formatting import keyword_text, number_text
from truestep.core.user_frames import running_user_lines
from truestep.core.weak import weak_method_callback
from truestep.engine.automatic_choice import Choice, Choices
from truestep.engine.buffer_rules import BufferRule
from truestep.engine.clipping import Clip
from truestep.engine.data import BatchSource, DataOptions
from truestep.engine.data.options import DataKeywords
from truestep.engine.moving_averages import EMA
from truestep.engine.optimizers import OptimizerFactory
from truestep.engine.options import LearnerOptions, Modules
from truestep.engine.policy import NonFinite
from truestep.engine.precision import precision_named
from truestep.engine.precision.loss_scale import LossScale
from truestep.engine.processes.batch_row_shares import WHOLE
from truestep.engine.splitting import MicroBatch
from truestep.engine.unstepped_parameters import refuse_untrained
from truestep.mirror.address import mirror_address_of_run
from truestep.model.layers.interval import Every
from truestep.nn.seeds.seeded import check_seed, seed_everything
from truestep.run.data_call_errors import check_unpacked_batches, wrong_data_message
from truestep.run.fixed_length_passes import check_loop_count
from truestep.run.late_setup import label_for_run_data, refuse_creation_after_start, refuse_data_call_in_loop
from truestep.run.media.kind import EncodedMedia
from truestep.run.options import (
    Resume,
    Saving,
    StrategyName,
    check_logged_values,
    check_run_exit_statuses,
    check_run_numbers,
    check_run_options,
    logged_numbers,
)
from truestep.run.pass_batches import Batches, RemainingLoopNumbers
from truestep.run.screen import RunConsole
from truestep.run.trackers.tracker import Tracker
from truestep.run.user_state import check_run_state_kind

if TYPE_CHECKING:
    from truestep.engine.learner import Learner


@refuse_property_calls("run")
@methods_raise_option_errors("run")
class Run(SealedAttributes, NotIterableObject, NeverPickled, Shown):
    """One training and its directory.

    An empty or new directory starts a run; one that holds this run goes on where it stopped.

    Args:
        directory: where config, metrics, checkpoints and the report are kept; without one, a new one under `runs/`, named after
            the script.
        seed: decides orders, augmentation, dropout, and (python's, NumPy's and torch's global streams start at it) the weights of
            modules that are made after the run; the same seed gives the same run.
        precision: the mode of learners that name none, see `docs/choose-precision.md`; "float32", or "float64" for such weights.
        device: "auto", or what `torch.device` takes.
        resume: "auto"; "never" refuses a directory that holds a run; "must" one that does not; "anew" starts a run in a new
            numbered directory beside one that is taken (`runs/x-2`), in which a process that its launcher starts again goes on;
            "edited" goes on with what the code has changed since (a learning rate, a batch size, the config), which is
            refused otherwise.
        config: hyper-parameters (a mapping or data class), kept and compared when the run goes on.
        nonfinite: what to do about a NaN or infinite loss or gradient: "raise", "skip" the update and count it, "keep" it, or
            "rollback" to the last healthy checkpoint after several in a row. Loss and gradients are looked at before each
            update is applied, but with "keep".
        deterministic: use deterministic algorithms only.
        saving: when to save and what to keep.
        log_every: write a line of metrics every so many steps.
        progress: show a bar (on a terminal) or lines now and then. Without it the run still says what it promises and finds.
        quiet: say only what is wrong: with a result, with a run that would go on and end elsewhere, with a line of no effect.
        exit_statuses: by signal number, for other statuses than 130, 143, 138 and 129.
        strategy: how several processes share the training: "ddp", each with all weights and a part of every batch; "fsdp", with
            a part of the weights, too; "single", each alone with a run of its own; "auto" is "ddp" where several were started
            together. One process is always "single".
        timeout_seconds: of several processes, how long one may keep the others waiting before all stop and name it; saving a
            checkpoint may take longer.
        doctor: have the doctor look at data, model and loss in the first 20 updates, and say what is wrong with them; the
            run's numbers are the same with it and without.
        trackers: what else is told all that is logged: `ts.CsvTracker()`, `ts.TensorBoardTracker()`, `ts.WandbTracker()`,
            `ts.MlflowTracker()`, a `ts.Tracker` of your own.
            One that fails is left out, and the run goes on.
        watch_layers: look at the layers in one update of so many, for the report and to say which of them do not learn; 0 for
            never; "auto" is 64, and fewer looks where they would take over 1 % of the time. The run's numbers are the same.
        mirror: an address in an object store, "s3://bucket/runs/x" (also gs://, az:// and file:///shared/x), where a thread keeps
            the checkpoints, too: a start with an empty directory goes on from there, on any machine. See
            `docs/howto/spot-machines.md`.
    """

    _called, _variable = "A run", "run"
    _settable = frozenset({"state"})

    @raises_option_errors("ts.Run")
    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        seed: int = 0,
        precision: str | None = None,
        device: str | torch.device = "auto",
        resume: Resume = "auto",
        config: Any = None,
        nonfinite: NonFinite = "raise",
        deterministic: bool = False,
        saving: Saving | None = None,
        log_every: int = 10,
        progress: bool = True,
        quiet: bool = False,
        exit_statuses: Mapping[int, int] | None = None,
        doctor: bool = True,
        strategy: StrategyName = "auto",
        timeout_seconds: float = 600.0,
        trackers: Sequence[Tracker] = (),
        watch_layers: Every = "auto",
        mirror: str | None = None,
    ) -> None:
        from truestep.run import opening
        from truestep.run.device import set_run_determinism

        seed, statuses = check_seed(seed, by="ts.Run"), check_run_exit_statuses(exit_statuses)
        check_run_options(nonfinite, strategy, saving)
        check_run_numbers(log_every=log_every, watch_layers=watch_layers, timeout_seconds=timeout_seconds)
        self.precision, self.strategy = precision_named(precision or "float32"), strategy
        joined = opening.join_run(device, strategy, timeout_seconds, seed=seed, nonfinite=nonfinite)
        self.context, agreement = joined
        self.directory = opening.directory_chosen_by_rank_0(agreement, directory, resume)
        self.saving, self.resume_as, self._said = saving or Saving(), resume, precision
        self._shared = run = opening.make_run_state(
            joined, self.directory, self.saving, resume, strategy=strategy, config=config
        )
        self.config, self.cursor = run.config, run.cursor
        run.described = self.saving.beside(seed=seed, precision=self.precision.name, config=run.config)
        screen = RunConsole(shows_progress=progress, is_quiet=quiet, is_main=self.is_main)
        run.set_up_reporting(screen, trackers, log_every)
        run.mirror_at(mirror_address_of_run(mirror, directory, self.directory))
        self.trackers, self.logbook = run.trackers, run.logbook
        self.session, self._loop = opening.make_run_session(
            run, statuses, doctor=doctor, watch_layers=watch_layers
        )
        self.context.choose("precision", self.precision.name, self.precision.meaning)
        set_run_determinism(self.context, deterministic=deterministic)
        seed_everything(seed)
        self.context.observer = self.session  # last: whatever is computed now comes to a run that is whole
        weakref.finalize(self, weak_method_callback(self.session.end.endings.dropped)).atexit = False
        self._seal()

    # ------------------------------------------------------------------ what is trained, and on what

    @raises_option_errors("run.learner")
    def learner(
        self,
        modules: Modules,
        optimizer: OptimizerFactory,
        *,
        name: str | None = None,
        precision: str | None = None,
        clip: Clip | Callable[..., None] | None = None,
        schedule: ScheduleFactory | None = None,
        ema: EMA | None = None,
        loss_scale: LossScale | float | str | None = None,
        micro_batch: MicroBatch = None,
        starts_at: int = 0,
        compile: bool = False,  # noqa: A002  (the field's word)
        buffers: Mapping[str, BufferRule] | None = None,
    ) -> "Learner":
        """Make a learner of a module (or a dict or list of them); it is moved to the device and cast first.

        Args:
            modules: what is trained.
            optimizer: makes the optimizer (or several) from the parameters: `lambda p: torch.optim.AdamW(p, lr=1e-3)`.
            name: what it is called in metrics and checkpoints; the module's class by default.
            precision: its mode; the run's by default.
            clip: `ts.ClipNorm(1.0)`, `ts.ClipValue(...)`, `ts.ClipAdaptive()`, or a function of {name: gradient}.
            schedule: makes a schedule from an optimizer: `lambda o: ts.warmup_cosine(o, ...)`; it counts applied updates.
            ema: keep a moving average of the weights: `ts.EMA(decay=0.999)`.
            loss_scale: for float16 modes: "dynamic", a number, or `ts.LossScale(...)`.
            micro_batch: the largest number of examples computed at once, "auto" to let memory decide.
            starts_at: train only when `run.step` has come so far.
            compile: compile the loss functions with `torch.compile`.
            buffers: how buffers that a forward fills are combined over processes, `{"codebook.*": "mean"}`; see
                `docs/howto/shared-buffers.md`.
        """
        from truestep.run import opening

        refuse_creation_after_start("run.learner(...)", "its weights", started=self._shared.has_begun)
        options = LearnerOptions(
            name=name or self._unused_learner_name(modules),
            precision=precision or self._said,
            clip=clip,
            schedule=schedule,
            ema=ema,
            loss_scale=loss_scale,
            micro_batch=micro_batch,
            starts_at=starts_at,
            compile=compile,
            buffers=buffers,
        )
        learner = opening.make_learner(modules, optimizer, options, self.context)
        self._shared.tracked.add_per_process_buffers(self.context.learners[options.name])
        self.session.beside.begin()  # from here on it may be stepped by hand
        return learner

    def _unused_learner_name(self, modules: Modules) -> str:
        name = type(modules).__name__.lower() if isinstance(modules, torch.nn.Module) else "learner"
        taken = self.context.learners
        return next(n for n in (name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)

    @raises_option_errors("run.data", wrong_data_message)
    def data(self, data: Any, **options: Unpack[DataKeywords]) -> BatchSource:
        """Make a source of batches; for the options see `ts.DataOptions`.

        `data` may be tensors in memory (one, or a tuple or dict of them), a data set, an iterable, or a `DataLoader`.
        `batch_size` is the global batch: a hyper-parameter, not what fits into memory.
        """
        from truestep.engine.data import open_source
        from truestep.run.run_documents import note_data_choices

        cursor, world, given = self.cursor, self.context.world, DataOptions.of(options)
        if self.session.end.endings.watching:
            refuse_data_call_in_loop(cursor)
        seed = random_key(self.context.seed, cursor.streams.num_sources)
        share = world.share if world is not None else WHOLE
        source = open_source(data, given, seed=seed, device=self.context.device, share=share, world=world)
        label = label_for_run_data(cursor.streams.labels, f"data_{cursor.streams.num_sources + 1}")
        if (
            edits := cursor.streams.add(source, label, is_late=self._shared.has_begun)
        ) and self.resume_as != "edited":
            from truestep.run.directory import changed_settings_error

            raise changed_settings_error(DataError, edits, self.directory)
        if self.resume_as == "edited":
            source.accept_other_data()
        note_data_choices(self.context, source, label)
        source._seal()
        return source

    @raises_option_errors("run.track")
    def track(self, *, per_rank: bool = False, **objects: Any) -> None:
        """Save these objects with the run, and put them back where it goes on; to be called before the first loop.

        Whatever has `state_dict()` and `load_state_dict()` can be given (target networks, replay buffers, environments,
        schedules of your own), and generators of random numbers. A state is made of tensors, arrays and JSON values; nothing
        is pickled.

        Args:
            per_rank: of several processes each has a state of its own (an environment, a generator), and each is put back where
                it was; the run goes on at the same number of processes only. Otherwise rank 0's state is that of all.
            objects: each by the name that its state is kept under.
        """
        given = ", ".join(map(keyword_text, objects))
        refuse_creation_after_start(f"run.track({given})", "their states", started=self._shared.has_begun)
        self._shared.tracked.add(objects, per_rank=per_rank)
        for text in self._shared.tracked.tracked_learner_module_messages(
            objects, self.context.learners.values()
        ):
            self._shared.screen.say_once(text)

    # ------------------------------------------------------------------ the loop

    @raises_option_errors("run.epochs")
    def epochs(self, total: int) -> Iterator[int]:
        """Yield the numbers of the epochs still to do; the run starts, or goes on, here, and is finished at the end."""
        check_loop_count("run.epochs(total), how many epochs the whole run has,", total, at_least=0)
        self.cursor.refuse_epochs_begun_again(self.directory)
        self.session.start()
        return RemainingLoopNumbers(self._loop.epochs(total, self), f"run.epochs({total})")

    @raises_option_errors("run.steps")
    def steps(self, total: int) -> Iterator[int]:
        """Yield the numbers of the steps still to do, for a training without a data set; between two of them the run is saved.

        Each is to the run what a batch is: `run.step` counts it and the randomness of its updates is keyed by it. The run is
        finished after the last.
        """
        check_loop_count("run.steps(total), how many steps the whole run has,", total, at_least=0)
        self.cursor.refuse_steps_begun_again(self.directory)
        self._prepare_pass()
        return RemainingLoopNumbers(self._loop.steps(total, self), f"run.steps({total})")

    @raises_option_errors("run.batches")
    def batches(self, source: BatchSource, *, limit: int | None = None) -> Batches:
        """Yield the batches of a source that are still to do in this pass; between two of them the run is saved.

        `len()` of what is returned is how many those are, and a TypeError where nobody knows.

        With `limit` a pass has just so many batches, and the next pass goes on where it ended: the source is read on and on,
        one order after the other, so that no sample comes again before all have come.
        """
        if limit is not None:
            check_loop_count(
                "run.batches(source, limit=...), how many batches a pass has,", limit, at_least=1
            )
        stream = self.cursor.streams.stream_of_source(source)
        self._prepare_pass()
        batches = check_unpacked_batches(self._loop.batches(stream, self, limit))
        return Batches(batches, self.cursor.num_batches_left(stream, limit))

    def _prepare_pass(self) -> None:
        for learner in self.context.learners.values():
            refuse_untrained(learner)
        self.session.start()

    def finish(self) -> None:
        """End the run early and for good: the loops end after this body, and a later start trains nothing more."""
        self.session.starting()
        self.cursor.finished = True

    def log(self, /, *unnamed: Any, **values: float | torch.Tensor | EncodedMedia) -> None:
        """Write named values to `metrics.jsonl` and show them; schedules and savings that wait for one see it.

        `ts.Image`, `ts.Audio` and `ts.Text` go into files of their own under `media/`, one a name and step, and into the report.
        """
        has_new = check_logged_values(unnamed, values, self.context, self._shared.logged)
        media: dict[str, EncodedMedia] = {}
        if {*map(type, values.values())} == {float}:
            numbers: dict[str, float] = values  # type: ignore[assignment]
        else:
            media = {name: value for name, value in values.items() if isinstance(value, EncodedMedia)}
            numbers = logged_numbers({name: value for name, value in values.items() if name not in media})
        if not self._shared.agreement.is_alone:
            from truestep.run.rank_log_check import check_logged_equal_on_ranks

            check_logged_equal_on_ranks(self._shared, numbers, media)
        if has_new:
            self._shared.logged.update(numbers)
        self.session.log(numbers, media)

    @raises_option_errors("run.save")
    def save(self) -> None:
        """Save a checkpoint at the next moment between two batches."""
        self.session.owner.check()
        self.session.save_requested = True

    def choices(self) -> list[Choice]:
        """Return every automatic choice with its reason, and what each learner was given that changes its numbers."""
        return Choices(self.context.choices)

    # ------------------------------------------------------------------ where it stands

    @property
    def state(self) -> dict[str, Any]:
        """Whatever the loop wants to find again after a resume, in tensors and JSON values."""
        return self._shared.user

    @state.setter
    def state(self, given: dict[str, Any]) -> None:
        check_run_state_kind(given)  # here, and not at the save that comes later
        self._shared.user = given

    @property
    def best(self) -> float | None:
        """The best value of the metric that `ts.Saving(best=...)` names."""
        return self._shared.best

    @property
    def step(self) -> int:
        """Batches given out so far; 0 until the first loop begins, where a run that goes on finds its place."""
        if not self._shared.has_begun:
            self._shared.asked_early.update(running_user_lines()[:1])
        return self.cursor.step

    @property
    def epoch(self) -> int:
        """The epoch under way, from 0."""
        if not self.cursor.is_in_epoch_body:
            self._shared.asked_epoch.update(running_user_lines()[:1])
        return self.cursor.epoch

    @property
    def device(self) -> torch.device:
        """Where the learners are."""
        return self.context.device

    @property
    def rank(self) -> int:
        """This process's number among all of the run's."""
        return self.context.rank

    @property
    def local_rank(self) -> int:
        """This process's number on its machine."""
        return 0 if self.context.world is None else self.context.world.local_rank

    @property
    def world_size(self) -> int:
        """How many processes the run has."""
        return self._shared.world_size

    @property
    def is_main(self) -> bool:
        """Whether this process writes what is shared."""
        return self.rank == 0

    def close(self) -> None:
        """Save if anything is unsaved, write the report, let go of the directory; more calls do nothing.

        In an `except` or `finally` that an exception out of the loop has led to, it saves as for that exception.
        """
        self.session.leave(None)

    def __enter__(self) -> Self:
        self._shared.in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.leave(error)

    def __repr__(self) -> str:
        return (
            f"Run({str(self.directory)!r}, step={self.step}, epoch={self.epoch}, device={self.device.type!r})"
        )

    def __rich__(self) -> RenderableType:
        from truestep.run.start_messages import run_position_text

        newest = self.logbook.newest.items()
        logged = [
            f"{name} {number_text(value)}"
            for name, value in newest
            if name.rpartition("/")[2] not in MEASURED
        ]
        facts = [
            ("place", run_position_text(self.cursor)),
            ("how", f"{self.precision.name} on {self.device}, seed {self.context.seed}"),
            *(("learner", repr(learner)) for learner in self.context.learners.values()),
            *((stream.label, repr(stream.source)) for stream in self.cursor.streams.values()),
            *([("newest", ", ".join(logged))] if logged else []),
        ]
        return facts_table(f"Run {self.directory}", facts)
