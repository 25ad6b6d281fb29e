# SPDX-License-Identifier: Apache-2.0
"""The lines of a log without what launchers, terminals and quotations put around them, by rank."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# sequences of terminals, then single controls, whose NULs are those of UTF-16 without its mark too
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_RANK = re.compile(
    r"""^(?: \[(?:rank|default|RANK\s?)(\d+)\]\s?:?[ ]?   # torchrun: [rank1]: or [default1]:
          | \[\d+,(\d+)\]<std(?:out|err)>:[ ]?            # mpirun --tag-output: [1,0]<stderr>:
          | (\d{1,4}):[ ]                                 # srun --label: 3:
    )""",
    re.VERBOSE,
)
_AROUND = re.compile(
    r"""^(?: >(?![ ]{3}(?:[ ]{4})*(?!File[ ]")\S)[ ]?                              # a quotation, but not pytest's mark
          | \(\w[\w.:-]*[ ]pid=\d+(?:,[ ]ip=[\d.]+)?\)(?:[ ]|$)                   # Ray
          | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)[ ]  # docker, kubectl --timestamps
    )""",
    re.VERBOSE,
)


_LONGEST_LINE = 20_000


@dataclass(frozen=True)
class ErrorLogLine:
    """One line, without what stood around it."""

    number: int  # from 1
    rank: int | None
    text: str


def clean_log_lines(text: Iterable[str]) -> Iterator[ErrorLogLine]:
    """Yield a log's lines; of a progress bar, which overwrites its own, the last state."""
    for number, line in enumerate(text, 1):
        shown = _CONTROL.sub("", line.rstrip("\r\n")).rpartition("\r")[2]
        rank = None
        while True:
            if (match := _RANK.match(shown)) and rank is None:
                rank = next(int(group) for group in match.groups() if group)
            elif not (match := _AROUND.match(shown)):
                break
            shown = shown[match.end() :]
        yield ErrorLogLine(number, rank, shown[:_LONGEST_LINE])
