# SPDX-License-Identifier: Apache-2.0
"""Has each event of a run recorded, tells the checks that follow it, and counts what that costs.

Nothing that breaks here reaches the user's training: a check that raises is left out from then on, and where the
recording itself raises, the watch ends; the report says so.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C import DisableTorchFunction
from torch.optim import Optimizer

from truestep.doctor.check import Check
from truestep.doctor.experiments.experiments import Experiments
from truestep.doctor.finding import CheckFailure, Finding
from truestep.doctor.runtime.recorder import Recorder
from truestep.doctor.runtime.user_code_line import watched_user_place
from truestep.doctor.runtime.watch_schedule import WatchPace
from truestep.doctor.watcher_base import EVENTS, Observation, Watcher

MAX_PER_CHECK = 5  # further findings of one check are left out
Handler = Callable[..., Any]


class WatchDepth(threading.local):
    """How deep a thread is within wrapped calls: what those call themselves is not the user's."""

    inside = 0


class Dispatcher:
    """Stands between the wrapped calls of a run, its recorder and the checks."""

    def __init__(self, recorder: Recorder, checks: Sequence[Check], pace: WatchPace) -> None:
        self.recorder = recorder
        self.pace = pace
        self.live = False  # what the wrapped calls look at before anything else
        self.findings: list[Finding] = []
        self.failures: list[CheckFailure] = []
        self.seconds = 0.0  # spent on watching
        self.switch_layers: Callable[[bool], None] = lambda _live: None  # set by who hooks the layers
        self.rest_operations: Callable[..., None] = lambda _resting, **_: None  # likewise
        self.hears: Callable[[str, dict[str, Any]], None] | None = (
            None  # each operation and its options, likewise
        )
        self.experiments: Experiments | None = None  # set where a run is experimented with
        self._depth = WatchDepth()
        self._handlers = {event: _event_handlers(checks, event) for event in EVENTS}

    def is_call_of_user(self) -> bool:
        """Tell whether a call is the user's own (not made by another wrapped call), in the thread that trains."""
        if self._depth.inside:
            return False
        thread = self.recorder.history.thread
        return thread is None or thread == threading.get_ident()

    @contextlib.contextmanager
    def suppress_inner_calls(self) -> Iterator[None]:
        """Within this, wrapped calls are part of another one."""
        depth = self._depth
        depth.inside += 1
        try:
            yield
        finally:
            depth.inside -= 1

    def tell(self, event: str, *facts: Any) -> None:
        """Have an event recorded, and tell the checks that follow it what the recorder returns.

        Its time is the watch's own cost, calls within are not the user's, and an error ends the watch.
        """
        started = time.perf_counter()
        depth = self._depth
        depth.inside += 1
        try:
            with DisableTorchFunction():  # what the checks compute is nobody's to see, nor ours to follow
                told = self._record_event(event, facts)
                if told is not None and self._handlers[event]:
                    self._tell_checks(event, told)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's training goes on
            self._stop_after_error(error)
        finally:
            depth.inside -= 1
            self.seconds += time.perf_counter() - started

    def _record_event(self, event: str, facts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return what the checks are told: what the recorder says, or the facts and their place where it notes nothing."""
        record = getattr(self.recorder, event, None)
        if record is None:
            return (*facts, watched_user_place()) if facts else facts
        told: tuple[Any, ...] | None = record(*facts)
        return told

    def _tell_checks(self, event: str, facts: tuple[Any, ...]) -> None:
        with torch.no_grad():
            for check, handler in tuple(self._handlers[event]):
                try:
                    for seen in handler(self.recorder.history, *facts) or ():
                        self.add(check, seen)
                except Exception as error:  # noqa: BLE001 - a check of ours must not stop the user's training
                    self.drop(check, error)

    def add(self, check: Check, seen: Observation) -> None:
        """Make a finding of what a check saw, unless there is one at that place or there are many of it."""
        known = [each for each in self.findings if each.code == check.code]
        if len(known) >= MAX_PER_CHECK or any(each.place == seen.place for each in known):
            return
        names = self.recorder.history.user_names_for_pages()
        finding = check.finding(
            seen.place, seen.message, seen.severity, names, evidence=seen.evidence, seen="ran"
        )
        self.findings.append(finding)

    def drop(self, check: Check, error: Exception) -> None:
        """Leave a check that broke out from now on."""
        self.failures.append(CheckFailure(check.code, "<run>", f"{type(error).__name__}: {error}"))
        for event, handlers in self._handlers.items():
            self._handlers[event] = [each for each in handlers if each[0] is not check]

    def _stop_after_error(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self.recorder.give_up(reason)
        self.failures.append(CheckFailure("watch", "<run>", reason))
        self.live = False
        self.switch_layers(False)

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: the place at which looking closely begins and ends.

        Raises:
            StopWatching: so many steps were wanted.
        """
        try:
            if (record := self.recorder.steps.count(optimizer)) is None:
                return
            if self.experiments is not None:
                self.experiments.stepped(record)
            if self.live:
                self.rest_operations(False)
                self.tell("on_stepped", record)
                self.tell("begin_step", record)
            if (num_steps := self.recorder.steps.count_run(record)) is not None:
                live = self.pace.looks_after(num_steps)
                if live != self.live:
                    self.look(live)
        except Exception as error:  # noqa: BLE001 - as above
            self._stop_after_error(error)

    def engine_stepped(self, optimizers: Sequence[Optimizer]) -> None:
        """Our engine has made an update, which goes past the calls that scripts make."""
        if not self.is_call_of_user():
            return
        for optimizer in optimizers:
            self.tell("used_by_engine", optimizer)
        for optimizer in optimizers:
            self.tell("on_step", optimizer, False)
            self.after_step(optimizer)

    def engine_updated(self) -> None:
        """Our engine has made an update in a script that is watched as a whole."""
        # its step was told before, and may have ended the looking that had its forwards noted
        noted = self.live or self.recorder.history.forwards_since_backward
        if noted and self.is_call_of_user():
            self.tell("engine_updated")

    def look(self, live: bool) -> None:
        """Look closely from here on, or no more."""
        if live == self.live or self.recorder.history.gave_up is not None:
            return
        self.live = live
        self.switch_layers(live)
        self.tell("look", live)

    def stop(self) -> None:
        """Tell nobody anything from now on."""
        self.live = False
        self._handlers = {event: [] for event in EVENTS}
        self.switch_layers(False)


def _event_handlers(checks: Sequence[Check], event: str) -> list[tuple[Check, Handler]]:
    """Return the methods of the checks that follow an event, watchers' before probes'."""
    followed = [
        each for each in checks if getattr(type(each), event, None) not in (None, getattr(Watcher, event))
    ]
    return [(each, getattr(each, event)) for each in followed]
