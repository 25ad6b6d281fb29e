# SPDX-License-Identifier: Apache-2.0
"""Has the doctor watch a run's first updates: what is wrong with data, model and loss is said once."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truestep.core.atomic_files import read_regular_file
from truestep.core.errors import RunDirectoryError
from truestep.core.secret_values import hide_secrets
from truestep.report.run_record import FINDINGS
from truestep.run.directory import write_run_json
from truestep.run.loss_random_draws import UnseededDrawWatcher
from truestep.run.state import RunState

if TYPE_CHECKING:
    from truestep.doctor.finding import Finding
    from truestep.doctor.runtime.watch import Watch
    from truestep.engine.parts import LearnerParts

SCHEMA_VERSION = 1
_WATCHING = "truestep.doctor.runtime.watch"


class FirstStepsDoctor:
    """Connects the watchers that apply to a loop which the engine drives, for as long as the watch's window."""

    def __init__(self, run: RunState, *, wanted: bool) -> None:
        self._run = run
        self._begun = not wanted
        self._watch: Watch | None = None
        self._noise: UnseededDrawWatcher | None = None
        self._applied: dict[str, int] = {}

    def begin(self) -> None:
        """The first loop begins: watch, unless the script is watched as a whole or something is compiled."""
        if self._begun:
            return
        self._begun = True
        compiled = any(map(_has_compiled_loss_or_module, self._run.context.learners.values()))
        if compiled or not self._run.is_main or self._run.context.strategy.divides_weights:
            return  # what is wrapped while a function is compiled would be compiled again without it
        from truestep.doctor.runtime.scope import engine_loop_scope
        from truestep.doctor.runtime.watch import Watch, WatchOptions, active_watch

        # the watch of a run that was left open, as a cell leaves it that was stopped, gives way
        if (watch := active_watch()) is None or watch.options.gives_way:
            self._watch = Watch(WatchOptions(gives_way=True), engine_loop_scope()).__enter__()
            self._noise = UnseededDrawWatcher(self._run)
            self._watch.dispatcher.hears = self._noise.on_operation

    def updated(self, learner: "LearnerParts") -> None:
        """A learner's update is done; one that was skipped tells nothing of its parameters."""
        if self._watch is None:
            # asked for by its name, so that what watches is not imported where nobody does
            if (module := sys.modules.get(_WATCHING)) is not None and (
                watch := module.active_watch()
            ) is not None:
                watch.dispatcher.engine_updated()
            return
        if not self._watch.is_on or learner.options.compile:
            self.end()
            return
        if self._noise is not None:
            self._noise.update_done()
        before = self._applied.get(learner.name)
        self._applied[learner.name] = learner.counters.updates
        if before != learner.counters.updates:
            self._watch.dispatcher.engine_stepped(learner.optimizers)
        if not self._watch.history.is_in_first_steps:
            self.end()

    def end(self) -> None:
        """The window is over, or the run: put everything back and say what was found."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        watch.end()
        grave = [each for each in watch.findings if each.severity.value in ("bug", "risk")]
        for finding in grave:
            self._run.screen.say(_finding_sentence(finding))
        if watch.findings:
            try:
                _append_findings_to_file(
                    self._run.directory / FINDINGS, [each.to_dict() for each in watch.findings]
                )
            except RunDirectoryError as error:  # a full disk, say: no reason to stop a training
                self._run.screen.say(f"what the doctor found could not be kept ({error})")


def _has_compiled_loss_or_module(learner: "LearnerParts") -> bool:
    """Whether its loss is compiled, or a module of it was before the run: torch warns of hooks on those at each call."""
    return learner.options.compile or any(hasattr(each, "_orig_mod") for each in learner.module.modules())


def _finding_sentence(finding: "Finding") -> str:
    return (
        f"{finding.place}: {finding.severity} {finding.code} {finding.name}: {finding.message} "
        f"Why: {finding.why} Fix: {finding.fix}"
    )


def _append_findings_to_file(path: Path, findings: list[dict[str, Any]]) -> None:
    """Write findings beside those that were there; one found again after a resume stays one."""
    try:
        known = json.loads(read_regular_file(path))["findings"]
        kept = [
            each
            for each in known
            if _finding_key(each) not in {_finding_key(finding) for finding in findings}
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        kept = []  # the file is damaged: what was found now stands alone
    write_run_json(path, {"schema_version": SCHEMA_VERSION, "findings": hide_secrets([*kept, *findings])})


def _finding_key(finding: dict[str, Any]) -> tuple[Any, ...]:
    return finding["code"], finding["path"], finding["line"]
