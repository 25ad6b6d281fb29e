# SPDX-License-Identifier: Apache-2.0
"""Reads tracebacks as rich draws them, in a box, and as pytest prints them, between source lines."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from truestep.explainer.crash import CrashFrame
from truestep.explainer.logs.lines import ErrorLogLine

_TOP = re.compile(r"^\s*[╭┌+][─-]+ ?Traceback \(most recent call last\) ?[─-]+[╮┐+]\s*$")
_IN_BOX = re.compile(r"^\s*[│|](?P<content>.*?)[│|]?\s*$")
_BOX_FRAME = re.compile(
    r"^(?P<path>.+?):(?P<line>\d+) in (?P<function>\S.*)$|^in (?P<cell>\S.*?):(?P<cell_line>\d+)$"
)
_BOX_MARK = re.compile(r"^[❱>]\s*(?P<line>\d+)[\s│|]*(?P<text>.*)$")

_PATH_BEGINS = re.compile(r"[/~]|[A-Za-z]:\\")
_LONGEST_PATH = 1000

_SECTION = re.compile(r"^(?:_{3,} .* _{3,}|={3,} .* ={3,})\s*$")
_PLACE = re.compile(
    r"^(?P<path>\S.*?\.py):(?P<line>\d+): ?(?:in (?P<function>\S+)|[A-Za-z_][\w.]*(?::.*)?)?\s*$"
)
_DEFINED = re.compile(r"^\s*(?:async )?def (?P<name>\w+)")
_MARKED = re.compile(r"^>\s{3,}(?P<text>\S.*)$")
PYTEST_ERROR = re.compile(r"^E {2,}")
_MAX_LINES = 2000  # of source that pytest prints before an error
_AFTER = 3  # lines after an error within which pytest names its place


def is_boxed_traceback(text: str) -> bool:
    """Whether a line is the top of rich's box around a traceback."""
    return "Traceback" in text and _TOP.match(text) is not None


def parse_boxed_frames(lines: Sequence[ErrorLogLine], place: int) -> tuple[list[CrashFrame], int]:
    """Return the frames of a box that begins at a place, and the place after it."""
    frames: list[CrashFrame] = []
    begun = ""  # of a path that the box's width breaks
    place += 1
    while place < len(lines) and (match := _IN_BOX.match(lines[place].text)):
        content = match["content"].strip()
        if head := _BOX_FRAME.match(begun + content) or _BOX_FRAME.match(f"{begun} {content}"):
            number = int(head["line"] or head["cell_line"])
            frames.append(CrashFrame(head["path"] or "<notebook>", number, head["function"] or head["cell"]))
            begun = ""
        elif (marked := _BOX_MARK.match(content)) and frames and int(marked["line"]) == frames[-1].line:
            frames[-1] = replace(frames[-1], text=marked["text"].strip())
        else:
            begun = begun + content if begun or _PATH_BEGINS.match(content) else ""
            begun = "" if len(begun) > _LONGEST_PATH else begun
        place += 1
    bottom = place < len(lines) and lines[place].text.lstrip()[:1] in ("╰", "└", "+")
    return frames, place + bottom


def unwrap_log_message(message: Sequence[str], width: int) -> str:
    """Return a message as it was before it was broken at a width."""
    whole = message[0].rstrip()
    for before, line in pairwise(message):
        broken = len(before.rstrip()) + 1 + len(line.split(" ", 1)[0]) > width
        whole += (" " if broken else "\n") + line.rstrip()
    return whole


def parse_pytest_error(lines: Sequence[ErrorLogLine], place: int) -> tuple[list[str], list[CrashFrame], int]:
    """Return the further lines of a message that pytest marks with E, its frames, and the place after it."""
    after = place + 1
    message = []
    while after < len(lines) and lines[after].text.startswith("E  "):
        message.append(PYTEST_ERROR.sub("", lines[after].text))
        after += 1
    first = place
    while first > max(0, place - _MAX_LINES) and not _SECTION.match(lines[first - 1].text):
        first -= 1
    behind = takewhile(lambda line: not _SECTION.match(line.text), lines[after : after + _AFTER])
    texts = [line.text for line in (*lines[first:after], *behind)]
    return message, _parse_pytest_frames(texts, place - first), after


def _parse_pytest_frames(texts: list[str], error: int) -> list[CrashFrame]:
    """Return the frames of one section: `path:NN: in f` with the line after it, or `path:NN:` with the marked one before."""
    frames = []
    function = marked = ""
    for number, text in enumerate(texts):
        if place := _PLACE.match(text):
            source = texts[number + 1].strip() if place["function"] and number + 1 < len(texts) else marked
            frames.append(
                CrashFrame(place["path"], int(place["line"]), place["function"] or function, source)
            )
            function = marked = ""
            if number > error:
                break
        elif defined := _DEFINED.match(text):
            function = function or defined["name"]  # those inside it come later
        elif found := _MARKED.match(text):
            marked = found["text"]
    return frames
