# SPDX-License-Identifier: Apache-2.0
"""What `truestep doctor` reports of a run: findings, what was watched and what not, the cost."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truestep.doctor.catalogue import check_topic, source_checks
from truestep.doctor.experiments.experiment_report import experiment_report_lines, experiments_document
from truestep.doctor.finding import CheckFailure, Finding, Place
from truestep.doctor.merging import merge_findings
from truestep.doctor.notebook import parse_notebook
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.reporting.json_and_sarif import SCHEMA_VERSION
from truestep.doctor.runtime.child_process_watch import collect_watch_notes
from truestep.doctor.runtime.history import WatchHistory
from truestep.doctor.runtime.process_notes import WatchNotes, merge_process_findings
from truestep.doctor.runtime.script import WatchedScript
from truestep.doctor.runtime.script_runner import ScriptOutcome
from truestep.doctor.runtime.watch import Watch
from truestep.doctor.runtime.watch_schedule import num_steps_watched
from truestep.doctor.selection import FindingsBaseline, ignore_comments_in

Others = tuple[list[WatchNotes], list[str]]


@dataclass
class WatchedRunReport:
    """One run of a script, read and watched."""

    reading: SourceReading
    watch: Watch
    outcome: ScriptOutcome
    total_seconds: float
    findings: list[Finding] = field(default_factory=list)
    lines: dict[Place, str] = field(default_factory=dict)
    num_hidden: int = 0
    others: list[WatchNotes] = field(default_factory=list)  # what other processes of the run saw
    silent: list[str] = field(default_factory=list)  # processes that ended without a word
    is_unparsed: bool = False  # the script is no Python: there was nothing to run

    @property
    def failures(self) -> list[CheckFailure]:
        """The checks that broke, in either way and any process."""
        broke = [failure for notes in self.others for failure in notes.failures]
        return [*self.reading.failures, *self.watch.failures, *broke]

    @property
    def has_steps(self) -> bool:
        """Whether an optimizer stepped, in any process: without a step nothing was seen of a training."""
        return bool(self.watch.history.num_steps) or any(each.num_steps for each in self.others)

    def watched(self, *, abstentions: bool = False) -> list[str]:
        """Return, in a few lines, what was watched and the cost; with `abstentions`, also which checks did not run and why."""
        history, watch = self.watch.history, self.watch
        models = ", ".join(sorted(history.model_names)) or "no model"
        optimizers = ", ".join(sorted(history.optimizer_names)) or "no optimizer that steps"
        lines = [f"watched {_num_steps_text(history)}: {models}; {optimizers}"]
        if not self.has_steps:
            lines.append(f"no optimizer stepped, so nothing was seen of a training: {self._why_no_step()}")
        lines += [
            f"watched {_counted_noun(num_steps_watched(notes.num_steps), 'step')} of {notes.num_steps} in {notes.process}"
            for notes in self.others
        ]
        if self.outcome.stopped_early:
            steps = _counted_noun(self.watch.options.max_steps or 0, "step")
            lines.append(
                f"stopped: after {steps}, as --steps says; files that the script wrote by then are left"
            )
        if self.silent:
            lines.append(f"without a word: {', '.join(self.silent)} (killed, or still at work)")
        lines += experiment_report_lines(watch.experiments, abstentions=abstentions)
        if history.unseen:
            lines.append(f"not seen: the inside of {', '.join(sorted(history.unseen))}, which is compiled")
        lines += self._not_run_lines() if abstentions else self._abstention_count_lines()
        if self.num_hidden:
            lines.append(f"hidden: {self.num_hidden} by comments or the baseline")
        return [*lines, self._cost_text()]

    def _why_no_step(self) -> str:
        if (error := self.outcome.error) is not None:
            at = f" in {self.outcome.error_place}" if self.outcome.error_place else ""
            return f"the script ended before{at}, by {error.partition(chr(10))[0]}"
        if self.outcome.status:
            return f"the script ended before, with status {self.outcome.status}; what it printed says why"
        if models := ", ".join(sorted(self.watch.history.model_names)):
            return f"{models} was called, and {self._evaluation_findings_text()}"
        return "do the script's arguments make it take a step?"

    def _evaluation_findings_text(self) -> str:
        """Return what the checks that read evaluations have found: a script that only evaluates is known by them."""
        selection = self.watch.options.selection
        read = {
            each.code
            for each in source_checks()
            if check_topic(type(each)) == "evaluation" and selection.wants(each.code)
        }
        found = sorted(read & {each.code for each in self.findings})
        codes = ", ".join(sorted(read - {*found}))
        above = f"{', '.join(found)} found what is shown; " if found else ""
        return f"{above}these checks that read evaluations found nothing: {codes}"

    def _not_run_lines(self) -> list[str]:
        by_reason = _codes_by_reason(self.watch.not_run()).items()
        return [f"not run: {', '.join(codes)}: {reason}" for reason, codes in by_reason]

    def _abstention_count_lines(self) -> list[str]:
        not_run, unsure = len(self.watch.not_run()), len(self.reading.abstentions)
        gave_up, reasons = self.watch.history.gave_up, list(_codes_by_reason(self.watch.not_run()))
        if gave_up is None and len(reasons) == 1:  # a reason for all of them, as giving up is
            gave_up = reasons[0]
        why = f": {gave_up}" if gave_up else ""
        words = [f"{_counted_noun(not_run, 'check')} did not run{why}"] if not_run else []
        words += [f"{_counted_noun(unsure, 'time')} a check could not tell"] if unsure else []
        return [f"{'; '.join(words)} (--show-abstentions)"] if words else []

    def _cost_text(self) -> str:
        own = self.watch.dispatcher.seconds
        share = 100 * own / self.total_seconds if self.total_seconds else 0.0
        files = _counted_noun(self.reading.num_read, "file")
        return (
            f"own cost: {own:.2f} s of {self.total_seconds:.2f} s ({share:.0f}%), "
            f"and {self.reading.seconds:.2f} s for reading {files}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what `--output json` prints."""
        place = self.outcome.error_place
        return {
            "schema_version": SCHEMA_VERSION,
            "findings": [each.to_dict() for each in self.findings],
            "abstentions": [each.to_dict() for each in self.reading.abstentions],
            "not_run": self.watch.not_run(),
            "experiments": experiments_document(self.watch.experiments),
            "unseen": sorted(self.watch.history.unseen),
            "failures": [each.to_dict() for each in self.failures],
            "torch_warnings": [
                {"path": at.path, "cell": at.cell or None, "line": at.line, "text": text}
                for at, text in self.outcome.warnings
            ],
            "script": {
                "status": self.outcome.status,
                "error": self.outcome.error,
                "error_path": place.path if place else None,
                "error_cell": (place.cell or None) if place else None,
                "error_line": place.line if place else None,
                "stopped_early": self.outcome.stopped_early,
            },
            "processes": [{"process": notes.process, "num_steps": notes.num_steps} for notes in self.others],
            "processes_silent": self.silent,
            "num_steps": self.watch.history.num_steps,
            "num_hidden": self.num_hidden,
            "elapsed_seconds": round(self.total_seconds, 4),
            "own_seconds": round(self.watch.dispatcher.seconds, 4),
        }


def _num_steps_text(history: WatchHistory) -> str:
    """Return how many steps were watched; of several optimizers the first that steps counts."""
    steps, several = history.num_steps, len(history.stepped_optimizers())
    text = f"{_counted_noun(num_steps_watched(steps), 'step')} of {steps}"
    return text if several < 2 else f"{text} (of the first of {several} optimizers)"


def _counted_noun(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _codes_by_reason(not_run: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for code, reason in not_run.items():
        found.setdefault(reason, []).append(code)
    return found


def make_report(
    reading: SourceReading,
    watch: Watch,
    outcome: ScriptOutcome,
    seconds: float,
    *,
    others: Others,
    script: WatchedScript,
) -> WatchedRunReport:
    """Join both ways and all processes, and hide what comments and the baseline hide."""
    notes, silent = others
    outcome = _with_shown_places(outcome, script)
    report = WatchedRunReport(reading, watch, outcome, seconds, num_hidden=reading.num_hidden)
    report.others, report.silent = notes, silent
    report.is_unparsed = any(str(each) in reading.lost_files for each in script.sources())
    baseline = FindingsBaseline(watch.options.selection.baseline)
    files: dict[str, _FileText] = {}
    ran = merge_process_findings(
        replace(each, findings=[replace(saw, place=script.shown(saw.place)) for saw in each.findings])
        for each in [collect_watch_notes(watch), *notes]
    )
    for finding in merge_findings(ran, reading.findings):
        path = finding.place.path
        file = files[path] = files.get(path) or _FileText(path)
        line = file.line(finding.place)
        if file.hides(finding) or (finding.seen == "ran" and baseline.hides(finding, line)):
            report.num_hidden += 1
            continue
        report.findings.append(finding)
        report.lines[finding.place] = line
    return report


def _with_shown_places(outcome: ScriptOutcome, script: WatchedScript) -> ScriptOutcome:
    place = outcome.error_place
    warned = [(script.shown(at), text) for at, text in outcome.warnings]
    return replace(outcome, error_place=script.shown(place) if place else None, warnings=warned)


class _FileText:
    """The text of a file that findings are in; of a notebook its cells, one after another."""

    def __init__(self, path: str) -> None:
        text, self._notebook = _read_text_or_empty(path), None
        if path.endswith(".ipynb"):
            with suppress(ValueError):
                self._notebook = parse_notebook(text)
                text = self._notebook.text
        self._ignores, self._lines = ignore_comments_in(text), text.splitlines()

    def line(self, place: Place) -> str:
        """Return the line at a place."""
        number = self._notebook_place(place).line
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def hides(self, finding: Finding) -> bool:
        """Tell whether a comment hides a finding."""
        return self._ignores.hide(replace(finding, place=self._notebook_place(finding.place)))

    def _notebook_place(self, place: Place) -> Place:
        return self._notebook.joined_place(place) if self._notebook is not None and place.cell else place


def _read_text_or_empty(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""
