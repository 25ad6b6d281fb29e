# SPDX-License-Identifier: Apache-2.0
"""Explains a log: which of its errors is the one to mend, and which only follow from it."""

import re
from dataclasses import dataclass, field
from typing import Any

from truestep.core.result_display import result_to_plain
from truestep.explainer.catalogue import explained_errors, nearest_errors, recognise_error
from truestep.explainer.crash import Crash
from truestep.explainer.explain import explain_crash
from truestep.explainer.explainer import Explainer
from truestep.explainer.explanation import Explanation
from truestep.explainer.logs.log_errors import ErrorInLog, ErrorLog, read_error_log

_NAMES_ERROR = re.compile(
    r"error|exception|warning|traceback|fail|abort|fatal|panic|segfault|fault|killed|cannot|can't|must|invalid|expected|no such"
    r"|not found|denied|refused|unable",
    re.IGNORECASE,
)
_NO_DIGITS = str.maketrans("", "", "0123456789")
_MESSAGE_LINES = 20  # a text this short without any exception is taken for a message


@dataclass(frozen=True, kw_only=True)
class ExplainedLogError:
    """One error that a log tells of."""

    error: str  # type and first line of the message
    line: int
    ranks: tuple[int, ...]
    explanation: Explanation | None  # None where the error is not known
    nearest: tuple[str, ...]  # the names of those most like an unknown one


@dataclass(frozen=True, kw_only=True)
class ErrorLogReport:
    """What a log tells: the error to mend first, then the others."""

    num_lines: int
    errors: tuple[ExplainedLogError, ...]
    cut_at: int | None = None  # the line of a traceback whose end, with the error, is missing

    @property
    def main(self) -> ExplainedLogError | None:
        """Return the error to mend; None where the log tells of none."""
        return next(iter(self.errors), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as one JSON document."""
        return {"schema_version": 1, **result_to_plain(self)}


@dataclass
class _ErrorOccurrences:
    """An error, wherever and however often it stands in the log."""

    found: ErrorInLog
    error: type[Explainer] | None
    ranks: set[int] = field(default_factory=set)
    is_fatal: bool = False

    @property
    def follows(self) -> bool:
        return self.error is not None and self.error.is_consequence

    def order(self) -> tuple[bool, bool, bool, int]:
        """Put first what follows from nothing else, what a process died of, what is known, what came first."""
        return self.follows, not self.is_fatal, self.error is None, self.found.number


def explain_log(text: str, *, is_file: bool = False) -> ErrorLogReport:
    """Explain the errors of a log, or of one message; a file that names no error is none, however short it is."""
    log = read_error_log(text)
    may_be_message = not is_file or _NAMES_ERROR.search(text) is not None
    sightings = sorted(
        _unique_errors_with_ranks(log, may_be_message=may_be_message), key=_ErrorOccurrences.order
    )
    return ErrorLogReport(
        num_lines=len(log.lines), errors=tuple(map(_explain_error_occurrences, sightings)), cut_at=log.cut_at
    )


def _unique_errors_with_ranks(log: ErrorLog, *, may_be_message: bool) -> list[_ErrorOccurrences]:
    """Return each error once, with the ranks that had it."""
    known = {id(each): match[0] for each in log.found if (match := recognise_error(each.crash))}
    once: dict[tuple[str, str], _ErrorOccurrences] = {}
    for each in log.found:
        error = known.get(id(each))
        sighting = once.setdefault(_deduplication_key(each, error), _ErrorOccurrences(each, error))
        sighting.ranks |= set() if each.rank is None else {each.rank}
        if each.crash.frames and not sighting.found.crash.frames:
            sighting.found = each
    for each in _last_error_of_each_rank(log, known):
        once[_deduplication_key(each, known.get(id(each)))].is_fatal = True
    if not known:
        for each in _known_errors_without_traceback(log, may_be_message=may_be_message):
            match = recognise_error(each.crash)
            once[match[0].name() if match else "", each.crash.title] = _ErrorOccurrences(
                each, match[0] if match else None, is_fatal=match is not None
            )
    return list(once.values())


def _last_error_of_each_rank(log: ErrorLog, known: dict[int, type[Explainer]]) -> list[ErrorInLog]:
    """Return what each rank died of: its last error, with those that it came from.

    What only follows from an error of another process, as torchrun's own report does, is passed over.
    """
    last: dict[int | None, ErrorInLog] = {}
    for each in log.found:
        error = known.get(id(each))
        if each.rank not in last or error is None or not error.is_consequence:
            last[each.rank] = each
    chains = {(rank, each.chain) for rank, each in last.items()}
    return [each for each in log.found if (each.rank, each.chain) in chains]


def _deduplication_key(each: ErrorInLog, error: type[Explainer] | None) -> tuple[str, str]:
    """Return what makes two errors one: their name, or their title, whatever numbers stand in it."""
    return (error.name(), "") if error else ("", each.crash.title.translate(_NO_DIGITS))


def _known_errors_without_traceback(log: ErrorLog, *, may_be_message: bool) -> list[ErrorInLog]:
    """Return the lines that name a known error without an exception; a lone message is one whatever it is."""
    telling = [error for error in explained_errors().values() if error.anywhere]
    ends = {each.number for each in log.found}  # these have a type, by which they are another error
    found, seen = {}, set[str]()
    for line in log.lines:
        kind = line.text.translate(_NO_DIGITS)  # lines that differ in their numbers tell the same
        if line.number in ends or kind in seen:
            continue
        seen.add(kind)
        for error in telling:
            if error not in found and error.search(line.text):
                found[error] = ErrorInLog(Crash((), line.text.strip()), line.number, line.rank)
    if (
        may_be_message
        and not found
        and not log.found
        and log.cut_at is None
        and 0 < sum(bool(line.text.strip()) for line in log.lines) <= _MESSAGE_LINES
    ):
        text = "\n".join(line.text for line in log.lines).strip()
        return [ErrorInLog(Crash((), text), 1, None)]
    return list(found.values())


def _explain_error_occurrences(sighting: _ErrorOccurrences) -> ExplainedLogError:
    crash = sighting.found.crash
    explanation = explain_crash(crash) if sighting.error is not None else None
    return ExplainedLogError(
        error=crash.title,
        line=sighting.found.number,
        ranks=tuple(sorted(sighting.ranks)),
        explanation=explanation,
        nearest=() if explanation else tuple(nearest_errors(crash.title)),
    )
