# SPDX-License-Identifier: Apache-2.0
"""Watches a run of training code: `with ts.watch(): ...`, or `truestep doctor` for a whole script.

A watch begins and ends here. What happened is written down by its recorder, and told by its dispatcher.
"""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from weakref import finalize

from truestep.core.errors import OptionError
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.os_specific import call_in_forked_children
from truestep.doctor.experiments.experiments import Experiments
from truestep.doctor.experiments.in_process_child import end_child_with_script
from truestep.doctor.finding import CheckFailure, Finding
from truestep.doctor.probe_base import Probe
from truestep.doctor.relations.relation import ExperimentRelation
from truestep.doctor.runtime.dispatcher import Dispatcher
from truestep.doctor.runtime.history import WatchHistory
from truestep.doctor.runtime.module_hooks import WatchedLayerHooks
from truestep.doctor.runtime.recorder import Recorder
from truestep.doctor.runtime.scope import WatchScope, whole_script_scope
from truestep.doctor.runtime.warning_lines import warn_at_plain_lines
from truestep.doctor.runtime.watch_schedule import WatchPace
from truestep.doctor.runtime.wrapping import WatchWrappers
from truestep.doctor.selection import CheckSelection
from truestep.doctor.watcher_base import Watcher

if TYPE_CHECKING:
    from truestep.core.rich_imports import Console, ConsoleOptions, RenderResult
import linecache
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from truestep.doctor.finding import Place

_active: list["Watch"] = []
NEVER_BEGUN = (
    "Nothing is watched: ts.watch(...) alone begins nothing, it watches a block. Write `with ts.watch(net) as watch:` with "
    "the training loop in it; `truestep doctor train.py` watches a whole script."
)


@dataclass(frozen=True)
class WatchOptions:
    """How a run is watched; it travels to the processes that a watched script starts."""

    selection: CheckSelection = field(default_factory=CheckSelection)
    max_steps: int | None = None
    probe: bool = False  # whether children apply the model once more, or go on with one thing changed
    thorough: bool = False  # whether to run checks that cost many steps
    gives_way: bool = False  # to a watch that begins while this one is on
    is_of_command: bool = False  # the script's own watches leave it the field


class Watch(HelpfulAttributes):
    """One watched run: use it as a context manager, then look at `findings`."""

    _called, _variable = "ts.watch(...)", "watch"

    def __init__(self, options: WatchOptions | None = None, scope: WatchScope | None = None) -> None:
        self.options = options = options or WatchOptions()
        self._scope = scope or whole_script_scope()
        wanted = [check for check in self._scope.checks if options.selection.wants(check.code)]
        self.watchers = [check() for check in wanted if issubclass(check, Watcher)]
        self.probes = [check() for check in wanted if issubclass(check, Probe)] if options.probe else []
        self.history = WatchHistory(thorough=options.thorough, is_whole=options.is_of_command)
        self.recorder = Recorder(self.history)
        checks = [*self.watchers, *self.probes]
        self.dispatcher = Dispatcher(self.recorder, checks, WatchPace(options.max_steps))
        relations = (
            [check() for check in wanted if issubclass(check, ExperimentRelation)] if options.probe else []
        )
        self.experiments = Experiments(self.history, relations, self.dispatcher.add, self.dispatcher.drop)
        self.dispatcher.experiments = self.experiments if relations else None
        hooks = WatchedLayerHooks(self.dispatcher)
        self.dispatcher.switch_layers, self.dispatcher.rest_operations = hooks.switch, hooks.rest
        self._wrappers = WatchWrappers()
        self.if_never_begun: finalize[..., Watch] | None = (
            None  # of a watch that a user makes: says that it does nothing
        )

    def __enter__(self) -> Self:
        if self.if_never_begun is not None:
            self.if_never_begun.detach()
        for other in [each for each in _active if each.options.gives_way]:
            other.end()
        if any(each.options.is_of_command for each in _active):
            self.recorder.give_up("truestep doctor watches the whole script")
            return self
        if _active:
            raise RuntimeError(
                "A watch is already on. End it before beginning another; they can't be nested."
            )
        _active.append(self)
        started = time.perf_counter()
        self._scope.wrap(self.dispatcher, self._wrappers)
        self._wrappers.exchange()
        self._wrappers.call(warn_at_plain_lines())
        self.dispatcher.seconds += time.perf_counter() - started
        self.dispatcher.look(True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        end_child_with_script(error)
        if kind is not None:
            self.recorder.cut_short()
        self.end()

    @property
    def is_on(self) -> bool:
        """Whether it has begun and not ended."""
        return self in _active

    @property
    def never_begun(self) -> bool:
        """Whether it was made for a block and the block never came."""
        return self.if_never_begun is not None and self.if_never_begun.alive

    @property
    def findings(self) -> list[Finding]:
        """What was found so far.

        Raises:
            OptionError: the watch was never begun, so that an empty list would say nothing.
        """
        if self.never_begun:
            raise OptionError(NEVER_BEGUN)
        return with_cell_places(self.dispatcher.findings)

    @property
    def failures(self) -> list[CheckFailure]:
        """What broke in the watch itself."""
        return self.dispatcher.failures

    def end(self) -> None:
        """Look at what is left, and put everything back; more calls do nothing."""
        if self not in _active:
            return
        if self.history.gave_up is None:
            self.dispatcher.tell("on_evaluation")
            self.dispatcher.tell("on_finish")
        self.abandon()
        _active.remove(self)

    def abandon(self) -> None:
        """Put everything back, and look at nothing: a forked child is not the run that is watched."""
        self.dispatcher.experiments = None
        self.dispatcher.stop()
        self._wrappers.undo()

    def not_run(self) -> dict[str, str]:
        """Return the checks that could not run, each with its reason."""
        return why_checks_did_not_run(self.history, self.watchers, self.probes)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Show the findings so far."""
        from truestep.core.rich_imports import Text
        from truestep.doctor.reporting.finding_layout import render_watched

        if self.never_begun:
            yield Text(NEVER_BEGUN)
            return
        lines = code_lines_of_findings(self.dispatcher.findings)
        yield from render_watched(self.findings, lines, self.history.num_steps, self.dispatcher.seconds)

    def _repr_html_(self) -> str:
        from truestep.core.result_display import result_html

        return result_html(self)


def active_watch() -> Watch | None:
    """Return the watch that is on in this process, if there is one."""
    return _active[-1] if _active else None


def _abandon_watches_after_fork() -> None:
    while _active:
        _active.pop().abandon()


call_in_forked_children(_abandon_watches_after_fork)


def why_checks_did_not_run(
    history: WatchHistory, watchers: Sequence[Watcher], probes: Sequence[Probe]
) -> dict[str, str]:
    """Return the checks that could not run, each with its reason."""
    if history.gave_up is not None:
        return {check.code: history.gave_up for check in (*watchers, *probes)}
    found: dict[str, str] = {}
    for watcher in watchers:
        if watcher.on_request and not history.thorough:
            continue  # what was not asked for is no news
        if watcher.cannot_run is not None:
            found[watcher.code] = watcher.cannot_run
        elif history.compiled and _looks_inside(watcher):
            found[watcher.code] = "the model is compiled: hooks on its modules would change what is compiled"
        elif not history.num_steps and not watcher.needs_no_step:
            found[watcher.code] = "no optimizer stepped"
    for probe in probes:
        if probe.cannot_run is not None:
            found[probe.code] = probe.cannot_run
        elif not probe.tried:
            found[probe.code] = "no model was applied in training mode before the first step"
    return found


def _looks_inside(watcher: Watcher) -> bool:
    kind = type(watcher)
    follows = kind.on_layer is not Watcher.on_layer or kind.on_operation is not Watcher.on_operation
    return watcher.looks_inside or follows


def with_cell_places(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings whose places in cells are called "cell [5]", as the notebook numbers what has run."""
    return [replace(each, place=_place_in_cell(each.place)) for each in findings]


def code_lines_of_findings(findings: Sequence[Finding]) -> Mapping[Place, str]:
    """Return the lines of code that findings in cells stand at, by the places that `with_cell_places` gives."""
    lines = {_place_in_cell(each.place): (each.place, _source_line(each.place)) for each in findings}
    return {place: line for place, (before, line) in lines.items() if place != before}


def _place_in_cell(place: Place) -> Place:
    label = _cell_label(place.path)
    return place if label is None else replace(place, path=f"cell {label}")


def _cell_label(file: str) -> str | None:
    """Return "[5]" of a file that a kernel made for a cell's code; None of any other, and outside of notebooks."""
    if "IPython" not in sys.modules:
        return None
    with suppress(AttributeError, TypeError, ValueError):  # of a shell of another version
        compiler: Any = sys.modules["IPython"].get_ipython().compile
        name: str = compiler.format_code_name(file)[1]  # "In[5]"; None for what is no cell
        return name.removeprefix("In")
    return None


def _source_line(place: Place) -> str:
    return linecache.getline(place.path, place.line).rstrip("\n")
