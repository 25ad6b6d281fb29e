# SPDX-License-Identifier: Apache-2.0
"""Watches a run of training code: `with ts.watch(): ...`, or `truestep doctor` for a whole script."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from torch import Tensor, nn
from torch.optim import Optimizer

from truestep.doctor.catalogue import checks
from truestep.doctor.finding import Failure, Finding, Place
from truestep.doctor.probe import Probe
from truestep.doctor.selection import Selection
from truestep.doctor.watcher import EVENTS, Forward, Loss, Watcher
from truestep.doctor.watching import protocol
from truestep.doctor.watching.frames import user_place
from truestep.doctor.watching.layers import LayerHooks
from truestep.doctor.watching.looking import sensitive_layers
from truestep.doctor.watching.scene import PERIOD, WINDOW, OptimizerRecord, Scene
from truestep.doctor.watching.wrapping import Wrappers

EVALUATIONS = 3  # so many are watched, whenever they come
MAX_PER_CHECK = 5  # further findings of one check are left out
_active: list["Watch"] = []


class StopWatching(BaseException):
    """Ends the script once the wanted number of steps is done; no `except Exception` catches it."""


class Watch:
    """One watched run: use it as a context manager, then look at `findings`."""

    def __init__(
        self,
        selection: Selection | None = None,
        *,
        max_steps: int | None = None,
        probe: bool = True,
        thorough: bool = False,
    ) -> None:
        self.selection = selection or Selection()
        self.max_steps = max_steps
        self.findings: list[Finding] = []
        self.failures: list[Failure] = []
        self.scene = Scene()
        self.scene.thorough = thorough
        self.live = False  # what the wrappers look at
        self.inside = 0  # within a wrapped call: what it calls itself is not the user's
        self.seconds = 0.0  # spent on watching
        self.num_evaluations = 0
        self._sources: set[int] = set()
        self._counted: OptimizerRecord | None = None
        self._thread = 0
        self._wrappers = Wrappers()
        self._layers = LayerHooks(self)
        wanted = [check for check in checks().values() if self.selection.wants(check.code)]
        self.watchers = [check() for check in wanted if issubclass(check, Watcher)]
        self.probes = [check() for check in wanted if issubclass(check, Probe)] if probe else []
        self._handlers = {event: self._following(event) for event in EVENTS}

    def _following(self, event: str) -> list[Any]:
        own = [each for each in self.watchers if getattr(type(each), event) is not getattr(Watcher, event)]
        return [getattr(each, event) for each in own]

    # ── beginning and end ─────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        if _active:
            raise RuntimeError(
                "A watch is already on. End it before beginning another; they can't be nested."
            )
        _active.append(self)
        self._thread = threading.get_ident()
        started = time.perf_counter()
        protocol.install(self, self._wrappers)
        self._layers.attach()
        self.live = True
        self.seconds += time.perf_counter() - started
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.break_off()
        started = time.perf_counter()
        self.tell("on_finish")
        self.live = False
        self._layers.detach()
        self._wrappers.undo()
        _active.remove(self)
        self.seconds += time.perf_counter() - started

    def break_off(self) -> None:
        """The code raised: a forward that no backward followed need not have been an evaluation."""
        self.scene.forwards_since_backward.clear()

    def abandon(self) -> None:
        """Fall silent in a forked child: it is not the run that is watched."""
        self.live = False
        self._handlers = {event: [] for event in EVENTS}

    # ── what happens ──────────────────────────────────────────────────────────────────────────

    def tell(self, event: str, *facts: Any) -> None:
        """Tell the watchers of an event; a watcher that breaks is reported and left out from then on."""
        if threading.get_ident() != self._thread:
            return
        for handler in list(self._handlers[event]):
            try:
                with torch.no_grad():
                    for saw in handler(self.scene, *facts) or ():
                        self._add(handler.__self__, saw)
            except Exception as error:  # noqa: BLE001 - a check of ours must not stop the user's training
                self._drop(handler.__self__, error)

    def _add(self, check: Watcher | Probe, saw: Any) -> None:
        known = [each for each in self.findings if each.code == check.code]
        if len(known) >= MAX_PER_CHECK or any(each.place == saw.place for each in known):
            return
        finding = check.finding(saw.place, saw.message, saw.severity, evidence=saw.evidence, seen="ran")
        self.findings.append(finding)

    def _drop(self, check: Watcher | Probe, error: Exception) -> None:
        self.failures.append(Failure(check.code, "<run>", f"{type(error).__name__}: {error}"))
        for event, handlers in self._handlers.items():
            self._handlers[event] = [each for each in handlers if each.__self__ is not check]

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Within this, wrapped calls are part of another one."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Count what happens within as the watch's own cost, and not as the user's calls."""
        started = time.perf_counter()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self.seconds += time.perf_counter() - started

    def optimizer_made(self, optimizer: Optimizer, place: Place) -> None:
        """An optimizer was constructed."""
        with self.timed():
            self.scene.records.pop(id(optimizer), None)  # the identity of one that is gone may come again
            self.tell("on_optimizer", self.scene.record(optimizer, place))

    def cleared(self, owner: Optimizer | nn.Module) -> None:
        """zero_grad() of an optimizer or a module has run."""
        with self.timed():
            place = user_place()
            mine = isinstance(owner, Optimizer)
            records = [self.scene.record(owner)] if mine else self.scene.holding(owner.parameters())  # type: ignore[arg-type, union-attr]
            for record in records:
                record.cleared_at = place if record.num_backwards else None
                record.marks = []
            self.tell("on_clear", records, place)

    @contextlib.contextmanager
    def backward(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Surround a backward."""
        scene = self.scene
        with self.timed():
            place = user_place()
            for record in scene.records.values():
                record.stale = record.num_steps > 0 and record.unchanged_since_mark()
            self.tell("on_backward", tuple(tensors), place)
        with self.quiet():
            yield
        with self.timed():
            scene.num_backwards += 1
            scene.forwards_since_backward.clear()
            for record in scene.records.values():
                record.num_backwards += 1
                record.cleared_at = None
                if record.stale:
                    record.mark()

    def clipping(self, parameters: list[Tensor]) -> None:
        """Gradients are about to be clipped."""
        with self.timed():
            self.tell("on_clip", parameters, user_place())

    def before_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        """An optimizer is about to step."""
        if not self.live:
            return
        with self.timed():
            record = self.scene.record(optimizer)
            record.has_closure = has_closure
            self.tell("on_step", record, user_place())

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: the place at which watching begins and ends."""
        scene = self.scene
        record = scene.records.get(id(optimizer)) or scene.record(optimizer)
        record.num_steps += 1
        if self.live:
            with self.timed():
                self.tell("on_stepped", record, user_place())
                record.num_backwards, record.cleared_at = 0, None
                record.mark()
        if self._counted is None:
            self._counted = record  # with several optimizers, the first that steps counts the steps
        if self._counted is record:
            scene.num_steps += 1
            self._pace()

    def _pace(self) -> None:
        """Watch in full at first, then two steps in 64."""
        steps = self.scene.num_steps
        if self.max_steps is not None and steps >= self.max_steps:
            raise StopWatching
        live = steps < WINDOW or steps % PERIOD in (0, 1)
        if live != self.live:
            self._set_live(live)

    def _set_live(self, live: bool) -> None:
        self.live = live
        if live:
            self._layers.attach()
            for record in self.scene.records.values():
                record.mark()
        else:
            self._layers.detach()
            for record in self.scene.records.values():
                record.marks, record.num_backwards, record.cleared_at = [], 0, None

    def scheduled(self, scheduler: Any) -> None:
        """A schedule has stepped."""
        if self.live and not self.inside:
            with self.timed():
                self.tell("on_schedule", scheduler, user_place())

    def mode_set(self, module: nn.Module, training: bool) -> None:
        """train() or eval() was called: an evaluation is watched whenever it comes."""
        with self.timed():
            if not training and not self.live and self.num_evaluations < EVALUATIONS:
                self._set_live(True)
            self.num_evaluations += not training
            self.tell("on_mode", module, training, user_place())

    def compiled(self) -> None:
        """torch.compile was called: hooks on modules would change what it compiles."""
        self.scene.compiled = True
        self._layers.detach()

    def epoch_started(self, source: Any) -> None:
        """A loader or a sampler begins anew."""
        if self.inside:
            return
        with self.timed():
            new = id(source) not in self._sources
            self._sources.add(id(source))
            if new and not self.live:  # perhaps an evaluation: watched until the next step
                self._set_live(True)
            self.tell("on_epoch", source, user_place())

    def loss(self, name: str, given: Any, target: Any, options: dict[str, Any], value: Any) -> None:
        """A loss was computed."""
        if not self.inside and isinstance(given, Tensor) and isinstance(target, Tensor):
            with self.timed():
                self.tell("on_loss", Loss(name, given, target, options, value, user_place()))

    def forward(self, forward: Forward) -> None:
        """A module was applied by the user's code."""
        self.scene.models.add(forward.module)
        self.scene.model_names.add(type(forward.module).__name__)
        active = sensitive_layers(forward.module, training=True)
        self.scene.forwards_since_backward.append((forward.module, forward.place, active))
        self.tell("on_forward", forward)
        if self.probes and forward.module.training and forward.gradients_on and self.scene.num_steps == 0:
            self._probe(forward)

    def _probe(self, forward: Forward) -> None:
        probes, self.probes = self.probes, []
        for check in probes:
            try:
                for saw in check.try_out(forward):
                    self._add(check, saw)
            except Exception as error:  # noqa: BLE001 - as in tell()
                check.cannot_run = f"{type(error).__name__}: {error}"
        self.probes = []
        self.tried = probes

    # ── the report ────────────────────────────────────────────────────────────────────────────

    def not_run(self) -> dict[str, str]:
        """Return the checks that could not run, each with its reason."""
        found: dict[str, str] = {}
        for watcher in self.watchers:
            if watcher.cannot_run is not None:
                found[watcher.code] = watcher.cannot_run
            elif watcher.looks_inside and self.scene.compiled:
                found[watcher.code] = (
                    "the model is compiled: hooks on its modules would change what is compiled"
                )
            elif not self.scene.num_steps:
                found[watcher.code] = "no optimizer stepped"
        for probe in [*self.probes, *getattr(self, "tried", [])]:
            if probe.cannot_run is not None:
                found[probe.code] = probe.cannot_run
            elif probe in self.probes:
                found[probe.code] = "no model was applied in training mode before the first step"
        return found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the findings so far."""
        from truestep.doctor.reporting.terminal import render_watch

        yield from render_watch(self)


def watch(
    *watched: nn.Module | Optimizer,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    probe: bool = True,
    thorough: bool = False,
) -> Watch:
    """Watch the training code in a `with` block and return what was found.

    Nothing need be given. Models and optimizers made before the block are known from the first time that they
    are used; naming them (in any order) makes them known at once.

    Args:
        watched: models and optimizers.
        select: codes, or beginnings of codes, to report; all when empty.
        ignore: codes, or beginnings of codes, to leave out.
        probe: whether to try out a copy of the model at the first step.
        thorough: whether to run checks that cost up to two hundred steps (GRAD030 learns one batch).
    """
    made = Watch(Selection(select=tuple(select), ignore=tuple(ignore)), probe=probe, thorough=thorough)
    for each in watched:
        if isinstance(each, Optimizer):
            made.scene.record(each, user_place())
        else:
            made.scene.models.add(each)
    return made


def _after_fork() -> None:
    for each in _active:
        each.abandon()


os.register_at_fork(after_in_child=_after_fork)
