# SPDX-License-Identifier: Apache-2.0
"""From an error to its explanation; for a live one, as a note on the exception."""

import linecache
import logging
from dataclasses import replace

from truestep.core.call_site import ends_in_raise
from truestep.core.errors import TruestepError
from truestep.core.text_formatting import ROWS_OF_SAMPLES
from truestep.core.user_frames import is_truestep_file
from truestep.doctor.finding import Severity
from truestep.explainer.catalogue import recognise_error
from truestep.explainer.crash import Crash, CrashFrame, crash_from_exception
from truestep.explainer.explainer import Explainer, Match
from truestep.explainer.explanation import TITLE, Explanation
from truestep.explainer.page import ErrorCase
from truestep.explainer.source import file_name_of_any_system
from truestep.explainer.values import is_tensor_at_crash

_log = logging.getLogger(__name__)
_MAX_VALUES = 4
_MAX_CHAIN = 10


def annotate_error(error: BaseException) -> None:
    """Add a note to an exception that says what it means here; nothing where it is not known.

    Type, message and traceback stay as they are. Whatever goes wrong in here is dropped, but for a debug log.
    """
    if not isinstance(error, Exception) or isinstance(error, TruestepError):
        return
    try:
        notes = getattr(error, "__notes__", ())
        if any(note.startswith(TITLE) for note in notes if isinstance(note, str)):
            return
        # A file that was edited since an earlier traceback would be shown as it was then.
        linecache.checkcache()
        explanation = explain_exception(error)
        if explanation is not None:
            error.add_note(explanation.note())
            # what asks whether the mistake is another one is read last
            error.__notes__.sort(key=lambda note: isinstance(note, str) and note.startswith(ROWS_OF_SAMPLES))
    except (Exception, SystemExit):  # noqa: BLE001 - the user's own error is what counts, whatever its str() does
        _log.debug("an explanation failed", exc_info=True)


def explain_exception(error: BaseException) -> Explanation | None:
    """Explain a live exception, or the first that it came from which is known."""
    whole = crash_from_exception(error)
    if is_answered_by_message(whole, error):
        return None
    if (found := explain_truestep_bug(whole, error)) is not None:
        return found
    outer = whole.frames
    for each in _exception_chain(error):
        for crash in _crashes_quoted_in_message(
            _add_frames_of_outer_errors(crash_from_exception(each), outer)
        ):
            found = explain_crash(crash)
            if found is not None:
                return found
    return None


def _exception_chain(error: BaseException) -> list[BaseException]:
    """Return an exception, the parts of a group, and those it came from, each once."""
    chain, waiting = list[BaseException](), [error]
    while waiting and len(chain) < _MAX_CHAIN:
        each = waiting.pop(0)
        # By identity: an exception of the user's may have an == of its own. A chain may lead back to where it began.
        if any(each is known for known in chain):
            continue
        chain.append(each)
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        # As Python shows it: `raise ... from None` hides the context, `from error` replaces it.
        context = None if each.__suppress_context__ else each.__context__
        following = context if each.__cause__ is None else each.__cause__
        waiting += [following] if following is not None else []
    return chain


def _add_frames_of_outer_errors(crash: Crash, outer: tuple[CrashFrame, ...]) -> Crash:
    """Return a crash with the outermost error's frames before its own, where it has none of the user's."""
    return crash if crash.user else replace(crash, frames=(*outer, *crash.frames))


def _crashes_quoted_in_message(crash: Crash) -> list[Crash]:
    """Return a crash, and the one that its message quotes: workers send their tracebacks as text."""
    if "Traceback (most recent call last)" not in crash.message:
        return [crash]
    from truestep.explainer.logs.log_errors import read_error_log

    inner = [each for each in read_error_log(crash.message).crashes() if each.frames]
    return [*(replace(each, context="") for each in inner), crash]


def explain_crash(crash: Crash) -> Explanation | None:
    """Explain a crash; None where it is not known."""
    found = recognise_error(crash)
    if found is None:
        return None
    error, match = found
    cause = _find_cause_case(error(), crash, match)
    page = error.page()
    user = crash.user
    return Explanation(
        name=error.name(),
        error=crash.title,
        means=page.means,
        here=cause.says if cause else None,
        at=f"{user.place} in {user.function}: {user.text}".strip(": ") if user else None,
        values=_describe_values_on_line(crash),
        check=read_check_finding_in_crash(crash, error.checks),
        fix=(cause.fix if cause else "") or page.fix,
        not_told=None if crash.is_live else error.not_in_a_log,
    )


def _find_cause_case(error: Explainer, crash: Crash, match: Match) -> ErrorCase | None:
    try:
        return error.cause(crash, match)
    except Exception:  # noqa: BLE001 - the page alone is worth showing
        _log.debug("the cause of %s was not found", error.name(), exc_info=True)
        return None


def _describe_values_on_line(crash: Crash) -> tuple[str, ...]:
    try:
        layer = crash.layer
        named = [each for each in crash.values if layer is None or each.value is not layer.module]
        # Tensors first: shapes, dtypes and devices explain most errors, and only a few values are shown.
        shown = [str(each) for each in sorted(named, key=lambda each: not is_tensor_at_crash(each.value))]
    except Exception:  # noqa: BLE001
        _log.debug("the values were not read", exc_info=True)
        return ()
    if layer is not None and layer.path:
        shown.append(str(layer))
    return tuple(shown[:_MAX_VALUES])


# What a slip in our code raises; others, of shapes and types say, may well be about the values that the user gave.
_SLIPS = (AttributeError, NameError, AssertionError)
_ANSWERED = (AttributeError, ImportError)


def innermost_truestep_frame(crash: Crash) -> CrashFrame | None:
    """Return the innermost frame where it is one of this package; None where the error comes out of other code."""
    last = crash.frames[-1] if crash.frames else None
    return last if last is not None and last.live is not None and is_truestep_file(last.path) else None


def is_answered_by_message(crash: Crash, error: BaseException) -> bool:
    """Whether this package raised it for a name that it does not have: its message is the answer."""
    return (
        isinstance(error, _ANSWERED) and innermost_truestep_frame(crash) is not None and ends_in_raise(error)
    )


def explain_truestep_bug(crash: Crash, error: BaseException) -> Explanation | None:
    """Return what is said of a slip in this package; None where it is none."""
    frame = innermost_truestep_frame(crash)
    if frame is None or not isinstance(error, _SLIPS) or ends_in_raise(error):
        return None
    return Explanation(
        name="mistake-of-truestep",
        error=crash.title,
        means="Truestep's own code failed here, most likely by a mistake of Truestep's and none of yours.",
        here=None,
        at=f"{frame.place} in {frame.function}: {frame.text}".strip(": "),
        values=(),
        check=None,
        fix="report it with this traceback, what `truestep env` prints, and the lines of your script that lead to it.",
        not_told=None,
    )


_MAX_LINES = 5000
_MAKING = ("__init__", "__getitem__", "__iter__", "forward")  # of objects: what they hold and give


def _lines_of_running_functions(crash: Crash, path: str) -> set[int]:
    """Return the lines of the functions that the error came through, and of those that made the objects in them.

    A finding in any other function is another mistake, or of code that never ran.
    """
    codes = {frame.live.f_code for frame in crash.frames if frame.live is not None and frame.path == path}
    for frame in crash.frames:
        kinds = {type(value) for value in frame.locals().values()}
        methods = (vars(kind).get(name) for kind in kinds for name in _MAKING)
        codes |= {code for method in methods if (code := getattr(method, "__code__", None)) is not None}
    return {line for code in codes if code.co_filename == path for *_, line in code.co_lines() if line}


def read_check_finding_in_crash(crash: Crash, codes: tuple[str, ...]) -> str | None:
    """Return the finding of one of these checks in the user's files; None where there is none, or no file."""
    if not codes or not crash.is_live:
        return None
    try:
        from truestep.doctor.catalogue import source_checks
        from truestep.doctor.linting import read_text

        wanted = [check for check in source_checks() if check.code in codes]
        for path in dict.fromkeys(frame.path for frame in reversed(crash.frames) if frame.is_users):
            lines = linecache.getlines(path)
            if not lines or len(lines) > _MAX_LINES:
                continue
            ran = _lines_of_running_functions(crash, path)
            for finding in read_text("".join(lines), path, wanted).findings:
                if finding.severity.rank < Severity.QUESTION.rank and finding.place.line in ran:
                    name = file_name_of_any_system(path)
                    return f"{finding.code} {finding.name} at {name}:{finding.place.line}: {finding.message}"
    except Exception:  # noqa: BLE001 - a check that fails takes nothing from the explanation
        _log.debug("the checks could not be asked", exc_info=True)
    return None
