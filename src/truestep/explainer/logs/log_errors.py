# SPDX-License-Identifier: Apache-2.0
"""Finds the errors in a log: tracebacks of Python and IPython, errors without one, lines that tell of one."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from truestep.explainer.crash import Crash, CrashFrame
from truestep.explainer.logs.lines import ErrorLogLine, clean_log_lines
from truestep.explainer.logs.rendered_tracebacks import (
    PYTEST_ERROR,
    is_boxed_traceback,
    parse_boxed_frames,
    parse_pytest_error,
    unwrap_log_message,
)

_START = re.compile(r"(?:Original )?Traceback \(most recent call last\):?\s*$")
_LINK = re.compile(r"^(?:The above exception was the direct|During handling of the above)|Original Traceback")
_NOTEBOOK_START = re.compile(r"^(\w[\w.]*)\s{2,}Traceback \(most recent call last\)")
_FRAME = re.compile(r"""^\s*File ["'](?P<path>.+?)["'], line (?P<line>\d+)(?:, in (?P<function>.*))?""")
_NOTEBOOK_FRAME = re.compile(
    r"^(?:File )?(?P<path>[~/<\w][^\s]*?\.py|<[^>]+>|/[^\s]*)(?::(?P<line>\d+),)? in (?P<function>[\w.<>]+)"
)
_ARROW = re.compile(r"^-+>\s*(?P<line>\d+)\s(?P<text>.*)$")
_END = re.compile(r"^\s*(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
_TYPE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Iteration|Exit|Fault|Failed|Failure)$"
)
_BARE = re.compile(
    r"(?:^|[\s\[(>│|:`*\"'])(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): (?P<message>\S.*)$"
    r"|^(?P<alone>(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?:Error|Exception)):?\s*$"
)
_SUMMARY = re.compile(r"^(?:FAILED|ERROR) \S+\.py(?:::\S+)? - ")  # pytest's, which cuts messages short
_NEW_ENTRY = re.compile(
    r"^(?:\[?\d{4}-\d\d-\d\d|[A-Z]+:|(?:WARNING|INFO|ERROR|DEBUG)\b|\[?[EWI]\d{4} |\+-|```)"
)
_MAX_MESSAGE_LINES = 400


@dataclass
class ErrorInLog:
    """An error that a log tells of."""

    crash: Crash
    number: int  # of the line that names the error
    rank: int | None = None
    chain: int = 0  # errors that came from one another share it


@dataclass
class ErrorLog:
    """The errors of a log, in the order of its lines."""

    found: list[ErrorInLog] = field(default_factory=list)
    lines: list[ErrorLogLine] = field(default_factory=list)

    @property
    def cut_at(self) -> int | None:
        """Return the line of the last traceback, where no error follows it; None where one does."""
        starts = [
            line.number
            for line in self.lines
            if _START.search(line.text) or _NOTEBOOK_START.match(line.text) or is_boxed_traceback(line.text)
        ]
        last = starts[-1] if starts else 0
        return last if last > max((each.number for each in self.found), default=0) else None

    def crashes(self) -> list[Crash]:
        """Return what is known of each error."""
        return [each.crash for each in self.found]


def decode_error_log(data: bytes) -> str:
    """Decode a log, whatever bytes stand in it."""
    # PowerShell's > writes the first; a mark before the second is no text
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, "replace")


def read_error_log(text: str | Iterable[str]) -> ErrorLog:
    """Find the errors of a log, rank by rank, as lines of several ranks stand in one another."""
    lines = list(clean_log_lines(_split_lines(text) if isinstance(text, str) else text))
    ranks: dict[int | None, list[ErrorLogLine]] = {}
    for line in lines:
        ranks.setdefault(line.rank, []).append(line)
    found = [each for rank in ranks.values() for each in _parse_errors_of_rank(rank)]
    return ErrorLog(sorted(found, key=lambda each: each.number), lines)


def _split_lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _parse_errors_of_rank(lines: Sequence[ErrorLogLine]) -> Iterator[ErrorInLog]:
    """Yield the errors of one rank; those that Python links by a sentence are one chain."""
    place, chain, before = 0, 0, 0
    while place < len(lines):
        start = place
        text = lines[place].text
        notebook = _NOTEBOOK_START.match(text)
        if notebook:
            found, place = _parse_ipython_traceback(lines, place + 1, notebook[1])
        elif _START.search(text):
            found, place = _parse_python_traceback(lines, place + 1)
        elif is_boxed_traceback(text):
            found, place = _parse_rich_traceback(lines, place)
        else:
            found, place = _parse_error_without_traceback(lines, place)
        if found is not None:
            linked = any(_LINK.search(line.text) for line in lines[before : start + 1])
            chain, before = chain if linked else chain + 1, place
            found.chain = chain
            yield found


def _parse_python_traceback(lines: Sequence[ErrorLogLine], place: int) -> tuple[ErrorInLog | None, int]:
    """Read Python's own traceback: frames with their lines, then type and message."""
    frames: list[CrashFrame] = []
    indented = False
    while place < len(lines):
        text = lines[place].text
        frame = _FRAME.match(text)
        if frame:
            indented = indented or text.startswith(" ")
            source = lines[place + 1].text if place + 1 < len(lines) else ""
            is_source = (
                bool(source.strip()) and not _FRAME.match(source) and not _is_exception_line(source, indented)
            )
            frames.append(
                CrashFrame(
                    frame["path"],
                    int(frame["line"]),
                    (frame["function"] or "").strip(),
                    source.strip() if is_source else "",
                )
            )
            place += 2 if is_source else 1
        elif _is_exception_line(text, indented):
            return _parse_type_and_message(lines, place, frames)
        elif _START.search(text) or _NOTEBOOK_START.match(text):
            return None, place
        elif not indented and frames and not text.strip():
            return None, place + 1
        else:
            place += 1
    return None, place


def _parse_rich_traceback(lines: Sequence[ErrorLogLine], place: int) -> tuple[ErrorInLog | None, int]:
    """Read rich's traceback: frames in a box, type and message below it, broken at the box's width."""
    width = len(lines[place].text.strip())
    frames, place = parse_boxed_frames(lines, place)
    if place < len(lines) and _is_exception_line(lines[place].text, indented=True):
        return _parse_type_and_message(lines, place, frames, width)
    return None, place


def _is_exception_line(text: str, indented: bool) -> bool:
    match = _END.match(text)
    if match is None:
        return False
    if _TYPE.match(match["type"]):
        return True
    return indented and not text.startswith(" ") and "." in match["type"] and match["message"] is not None


def _parse_type_and_message(
    lines: Sequence[ErrorLogLine], place: int, frames: list[CrashFrame], width: int = 0
) -> tuple[ErrorInLog, int]:
    """Read type and message, and what of the message follows on further lines."""
    match = _END.match(lines[place].text)
    assert match is not None
    message = [match["message"] or ""]
    after = place + 1
    while (
        after < len(lines)
        and after - place < _MAX_MESSAGE_LINES
        and _is_message_continuation(lines[after].text)
    ):
        message.append(lines[after].text)
        after += 1
    if width:
        start = lines[place].text[: len(lines[place].text) - len(message[0])]
        text = unwrap_log_message([start + message[0], *message[1:]], width).removeprefix(start)
    else:
        text = "\n".join(message)
    return _make_error_in_log(lines, place, match["type"], text, frames), after


def _is_message_continuation(text: str) -> bool:
    return not (
        not text.strip()
        or _START.search(text)
        or _NOTEBOOK_START.match(text)
        or is_boxed_traceback(text)
        or _NEW_ENTRY.match(text)
        or _BARE.match(text)
    )


def _parse_ipython_traceback(
    lines: Sequence[ErrorLogLine], place: int, kind: str
) -> tuple[ErrorInLog | None, int]:
    """Read IPython's traceback, which marks lines with arrows and ends with `Type: message`."""
    frames: list[CrashFrame] = []
    path, function = "", ""
    while place < len(lines):
        text = lines[place].text.strip()
        if frame := _NOTEBOOK_FRAME.match(text.lstrip("[")):
            path, function = frame["path"], frame["function"]
        elif arrow := _ARROW.match(text):
            frames.append(
                CrashFrame(path or "<notebook>", int(arrow["line"]), function, arrow["text"].strip())
            )
        elif (end := _END.match(text)) and end["type"].rpartition(".")[2] == kind.rpartition(".")[2]:
            return _parse_type_and_message(lines, place, frames)
        elif _START.search(text):
            break
        place += 1
    return None, place


def _parse_error_without_traceback(
    lines: Sequence[ErrorLogLine], place: int
) -> tuple[ErrorInLog | None, int]:
    """Read `Type: message` where no traceback led to it."""
    match = _BARE.search(lines[place].text)
    if match is None or _SUMMARY.match(lines[place].text):
        return None, place + 1
    message, after = [match["message"] or ""], place + 1
    if PYTEST_ERROR.match(lines[place].text):
        more, frames, after = parse_pytest_error(lines, place)
        kind = match["type"] or match["alone"]
        return _make_error_in_log(lines, place, kind, "\n".join([*message, *more]), frames), after
    while (
        after < len(lines)
        and lines[after].text.startswith(("\t", "    "))
        and not _FRAME.match(lines[after].text)
    ):
        message.append(lines[after].text)
        after += 1
    return _make_error_in_log(lines, place, match["type"] or match["alone"], "\n".join(message), []), after


def _make_error_in_log(
    lines: Sequence[ErrorLogLine], place: int, kind: str, message: str, frames: list[CrashFrame]
) -> ErrorInLog:
    around = "\n".join(line.text for line in lines[max(0, place - 60) : place + 20])
    crash = Crash((kind,), message.strip().strip("`*│ "), tuple(frames), context=around)
    return ErrorInLog(crash, lines[place].number, lines[place].rank)
