# SPDX-License-Identifier: Apache-2.0
"""Watches a run of training code: `with ts.watch(): ...`, or `truestep doctor` for a whole script."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from truestep.doctor.finding import Failure, Finding, Place
from truestep.doctor.probe import Probe
from truestep.doctor.selection import Selection
from truestep.doctor.watcher import EVENTS, Forward, Loss, Watcher
from truestep.doctor.watching.frames import user_place
from truestep.doctor.watching.kit import Kit, kit_for_everything
from truestep.doctor.watching.layers import LayerHooks
from truestep.doctor.watching.looking import sensitive_layers
from truestep.doctor.watching.pace import Pace
from truestep.doctor.watching.scene import Applied, Scene
from truestep.doctor.watching.shelter import Depth, sheltered
from truestep.doctor.watching.unheard import reasons_not_run
from truestep.doctor.watching.wrapping import Wrappers

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

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
        kit: Kit | None = None,
        gives_way: bool = False,
    ) -> None:
        self.selection = selection or Selection()
        self.kit = kit or kit_for_everything()
        self.gives_way = gives_way  # to a watch that begins while this one is on
        self.max_steps = max_steps
        self.findings: list[Finding] = []
        self.failures: list[Failure] = []
        self.scene = Scene()
        self.scene.thorough = thorough
        self.is_of_command = False  # the script's own watches leave it the field
        self.live = False  # what the wrappers look at
        self.drops = False  # whether functional dropout was at work since the last forward
        self.seconds = 0.0  # spent on watching
        self._depth = Depth()
        self._pacing = Pace()
        self._thread: int | None = None  # the one that first goes backward or steps
        self._wrappers = Wrappers()
        self._layers = LayerHooks(self)
        wanted = [check for check in self.kit.checks if self.selection.wants(check.code)]
        self.watchers = [check() for check in wanted if issubclass(check, Watcher)]
        self.probes = [check() for check in wanted if issubclass(check, Probe)] if probe else []
        self.tried: list[Probe] = []
        self._handlers = {event: self._following(event) for event in EVENTS}

    def _following(self, event: str) -> list[Any]:
        own = [each for each in self.watchers if getattr(type(each), event) is not getattr(Watcher, event)]
        return [getattr(each, event) for each in own]

    # ── beginning and end ─────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        for other in [each for each in _active if each.gives_way]:
            other.end()
        if any(each.is_of_command for each in _active):
            self.scene.gave_up = "truestep doctor watches the whole script"
            return self
        if _active:
            raise RuntimeError(
                "A watch is already on. End it before beginning another; they can't be nested."
            )
        _active.append(self)
        started = time.perf_counter()
        self.kit.install(self, self._wrappers)
        self._layers.attach()
        self.live = True
        self.seconds += time.perf_counter() - started
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.break_off()
        self.end()

    def break_off(self) -> None:
        """The code raised: a forward that no backward followed need not have been an evaluation."""
        self.differentiated()
        self.scene.is_cut_short = True

    def differentiated(self) -> None:
        """Gradients were computed past backward(): what was applied was no evaluation."""
        self.scene.forwards_since_backward.clear()

    @property
    def is_on(self) -> bool:
        """Whether it has begun and not ended."""
        return self in _active

    def end(self) -> None:
        """Look at what is left, and put everything back; more calls do nothing."""
        if self not in _active:
            return
        started = time.perf_counter()
        if self.scene.gave_up is None:
            self._finish()
        self._let_go()
        _active.remove(self)
        self.seconds += time.perf_counter() - started

    @sheltered
    def _finish(self) -> None:
        self._evaluated()
        self.tell("on_finish")

    def _evaluated(self) -> None:
        """What was applied, and not gone backward through until now, was evaluated."""
        applied, self.scene.forwards_since_backward = self.scene.forwards_since_backward, []
        if applied and self.scene.num_steps:
            self.tell("on_evaluation", applied)

    def _let_go(self) -> None:
        self.live = False
        self._layers.detach()
        self._wrappers.undo()

    def abandon(self) -> None:
        """Fall silent in a forked child: it is not the run that is watched."""
        self._handlers = {event: [] for event in EVENTS}
        self._let_go()

    def give_up(self, error: Exception) -> None:
        """The watch itself broke: say so, and leave the run alone from here on."""
        self.scene.gave_up = f"{type(error).__name__}: {error}"
        self.failures.append(Failure("watch", "<run>", self.scene.gave_up))
        self.live = False
        self._layers.detach()

    # ── what happens ──────────────────────────────────────────────────────────────────────────

    def sees(self) -> bool:
        """Tell whether a call is the user's own (not made by another wrapped call), in the thread that trains."""
        if self._depth.inside:
            return False
        return self._thread is None or self._thread == threading.get_ident()

    def tell(self, event: str, *facts: Any) -> None:
        """Tell the watchers of an event; a watcher that breaks is reported and left out from then on."""
        handlers = self._handlers[event]
        if not handlers:
            return
        with torch.no_grad():
            for handler in tuple(handlers):
                try:
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
        depth = self._depth
        depth.inside += 1
        try:
            yield
        finally:
            depth.inside -= 1

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Count what happens within as the watch's own cost, and not as the user's calls."""
        started = time.perf_counter()
        depth = self._depth
        depth.inside += 1
        try:
            yield
        finally:
            depth.inside -= 1
            self.seconds += time.perf_counter() - started

    @sheltered
    def optimizer_made(self, optimizer: Optimizer, place: Place) -> None:
        """An optimizer was constructed."""
        with self.timed():
            self.scene.records.pop(id(optimizer), None)  # the identity of one that is gone may come again
            self.tell("on_optimizer", self.scene.record(optimizer, place))

    @sheltered
    def cleared(self, owner: Optimizer | nn.Module) -> None:
        """zero_grad() of an optimizer or a module has run."""
        with self.timed():
            place = user_place()
            mine = isinstance(owner, Optimizer)
            records = [self.scene.record(owner)] if mine else self.scene.holding(owner.parameters())  # type: ignore[arg-type, union-attr]
            for record in records:
                record.cleared_at = place if record.was_reached else record.cleared_at
                record.was_reached = False
                record.marks = []
            self.tell("on_clear", records, place)

    @sheltered
    def before_backward(self, tensors: Sequence[Tensor]) -> None:
        """A backward is about to run."""
        with self.timed():
            self._thread = self._thread or threading.get_ident()
            for record in self.scene.records.values():
                record.stale = record.num_steps > 0 and record.unchanged_since_mark()
            self.tell("on_backward", tuple(tensors), user_place())

    @sheltered
    def after_backward(self) -> None:
        """A backward has run."""
        scene = self.scene
        with self.timed():
            scene.num_backwards += 1
            scene.forwards_since_backward.clear()
            for record in scene.records.values():
                record.num_backwards += 1
                record.was_reached = record.was_reached or record.has_gradients()
                record.cleared_at = None if record.was_reached else record.cleared_at
                if record.stale:
                    record.mark()

    @sheltered
    def clipping(self, parameters: list[Tensor]) -> None:
        """Gradients are about to be clipped."""
        with self.timed():
            self.tell("on_clip", parameters, user_place())

    @sheltered
    def before_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        """An optimizer is about to step."""
        with self.timed():
            record = self.scene.record(optimizer)
            record.has_closure = has_closure
            self.tell("on_step", record, user_place())

    @sheltered
    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: the place at which watching begins and ends."""
        scene = self.scene
        record = scene.records.get(id(optimizer)) or scene.record(optimizer)
        record.num_steps += 1
        if self.live:
            with self.timed():
                self.tell("on_stepped", record, user_place())
                record.forget()
                record.mark()
        if self._pacing.counts(record):
            scene.num_steps += 1
            self._pace()

    def engine_stepped(self, optimizers: Sequence[Optimizer]) -> None:
        """Our engine has made an update, which goes past the calls that scripts make."""
        if not self.sees():
            return
        with self.timed():
            self._thread = self._thread or threading.get_ident()
            for optimizer in optimizers:
                self.scene.record(optimizer, user_place())
        self._engine_went_back()
        for optimizer in optimizers:
            self.before_step(optimizer, has_closure=False)
            self.after_step(optimizer)

    def engine_updated(self) -> None:
        """Our engine has made an update within a script that is watched as a whole: its forwards were training."""
        if self.live and self.sees():
            self.scene.num_backwards += 1
            self.scene.forwards_since_backward.clear()

    @sheltered
    def _engine_went_back(self) -> None:
        with self.timed():
            self.tell("on_backward", (), user_place())

    def _pace(self) -> None:
        """Watch in full at first, then two steps in 256."""
        steps = self.scene.num_steps
        if self.max_steps is not None and steps >= self.max_steps:
            raise StopWatching
        live = self._pacing.looks_after(steps)
        if live != self.live:
            self._set_live(live)

    def _set_live(self, live: bool) -> None:
        if self.scene.gave_up is not None:
            return
        self.live = live
        if live:
            self._layers.attach()
            for record in self.scene.records.values():
                record.mark()
        else:
            self._layers.detach()
            for record in self.scene.records.values():
                record.marks = []
                record.forget()

    @sheltered
    def scheduled(self, scheduler: Any) -> None:
        """A schedule has stepped."""
        with self.timed():
            self.tell("on_schedule", scheduler, user_place())

    @sheltered
    def mode_set(self, module: nn.Module, training: bool) -> None:
        """train() or eval() was called: an evaluation is watched whenever it comes."""
        with self.timed():
            if not training and not self.live and self._pacing.wakes_for_evaluation():
                self._set_live(True)
            self._evaluated()
            self.tell("on_mode", module, training, user_place())

    @sheltered
    def gradients_off(self) -> None:
        """Gradients are switched off: at a line that was not there in the first steps it may be an evaluation."""
        new = self._pacing.is_new_line(user_place(3))
        if new and not self.live:
            self._set_live(True)

    def compiled(self) -> None:
        """Something is compiled: hooks on modules would change what it compiles."""
        self.scene.compiled = True
        self._layers.detach()

    @sheltered
    def epoch_started(self, source: Any) -> None:
        """A loader or a sampler begins anew."""
        with self.timed():
            new = self._pacing.is_new(source)
            if new and not self.live:  # perhaps an evaluation: watched until the next step
                self._set_live(True)
            self._evaluated()
            self.tell("on_epoch", source, user_place())

    @sheltered
    def loss(self, name: str, given: Any, target: Any, options: dict[str, Any], value: Any) -> None:
        """A loss was computed."""
        if isinstance(given, Tensor) and isinstance(target, Tensor) and not given.is_meta:
            with self.timed():
                self.tell("on_loss", Loss(name, given, target, options, value, user_place()))

    @sheltered
    def applied(self, module: nn.Module, output: Any) -> None:
        """Any module, also within others, gave its output."""
        with self.timed():
            self.tell("on_layer", module, output)

    @sheltered
    def forward(self, forward: Forward) -> None:
        """A module was applied by the user's code."""
        with self.timed():
            self.scene.add_model(forward.module)
            self.scene.model_names.add(type(forward.module).__name__)
            active = sensitive_layers(forward.module, training=True) or ["F.dropout"] * self.drops
            self.drops = False
            self.scene.forwards_since_backward.append(Applied.of(forward, active))
            self.tell("on_forward", forward)
            if self.probes and forward.module.training and forward.gradients_on and not self.scene.num_steps:
                self._probe(forward)

    def _probe(self, forward: Forward) -> None:
        self.probes, self.tried = [], self.probes
        for check in self.tried:
            try:
                for saw in check.try_out(forward):
                    self._add(check, saw)
            except Exception as error:  # noqa: BLE001 - as in tell()
                check.cannot_run = f"{type(error).__name__}: {error}"

    def not_run(self) -> dict[str, str]:
        """Return the checks that could not run, each with its reason."""
        return reasons_not_run(self)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Show the findings so far."""
        from truestep.doctor.reporting.terminal import render_watch

        yield from render_watch(self)

    def _repr_html_(self) -> str:
        from truestep.core.results import html_of

        return html_of(self)


def active() -> Watch | None:
    """Return the watch that is on in this process, if there is one."""
    return _active[-1] if _active else None


def _after_fork() -> None:
    while _active:
        _active.pop().abandon()


os.register_at_fork(after_in_child=_after_fork)
