# SPDX-License-Identifier: Apache-2.0
"""Asks the doctor's checks, which read source, whether they know the cause of an error."""

import linecache
import logging

from truestep.doctor.finding import Severity
from truestep.explainer.crash import Crash
from truestep.explainer.source import crashed_file_name

_log = logging.getLogger(__name__)
_MAX_LINES = 5000
_MAKING = ("__init__", "__getitem__", "__iter__", "forward")  # of objects: what they hold and give


def _lines_that_ran(crash: Crash, path: str) -> set[int]:
    """Return the lines of the functions that the error came through, and of those that made the objects in them.

    A finding in any other function is another mistake, or of code that never ran.
    """
    codes = {frame.live.f_code for frame in crash.frames if frame.live is not None and frame.path == path}
    for frame in crash.frames:
        kinds = {type(value) for value in frame.locals().values()}
        methods = (vars(kind).get(name) for kind in kinds for name in _MAKING)
        codes |= {code for method in methods if (code := getattr(method, "__code__", None)) is not None}
    return {line for code in codes if code.co_filename == path for *_, line in code.co_lines() if line}


def finding_of(crash: Crash, codes: tuple[str, ...]) -> str | None:
    """Return the finding of one of these checks in the user's files; None where there is none, or no file."""
    if not codes or not crash.is_live:
        return None
    try:
        from truestep.doctor.catalogue import source_checks
        from truestep.doctor.read import read_text

        wanted = [check for check in source_checks() if check.code in codes]
        for path in dict.fromkeys(frame.path for frame in reversed(crash.frames) if frame.is_users):
            lines = linecache.getlines(path)
            if not lines or len(lines) > _MAX_LINES:
                continue
            ran = _lines_that_ran(crash, path)
            for finding in read_text("".join(lines), path, wanted).findings:
                if finding.severity.rank < Severity.QUESTION.rank and finding.place.line in ran:
                    name = crashed_file_name(path)
                    return f"{finding.code} {finding.name} at {name}:{finding.place.line}: {finding.message}"
    except Exception:  # noqa: BLE001 - a check that fails takes nothing from the explanation
        _log.debug("the checks could not be asked", exc_info=True)
    return None
