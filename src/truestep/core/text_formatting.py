# SPDX-License-Identifier: Apache-2.0
"""Numbers and names as people read them: four digits, 1.2M, 0:42, 3.1 GiB, 1 batch; no name steers a terminal."""

import keyword
import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence

ROWS_OF_SAMPLES = "truestep: each of its"
"""How a note begins that asks whether samples are batches already; the engine writes it, and it is to be read last."""


def printable_text(text: str, keep: str = "\t\n") -> str:
    """Return a text in which characters that steer a terminal are written out: a file may be called anything."""
    return "".join(each if each.isprintable() or each in keep else repr(each)[1:-1] for each in text)


def wrap_line(line: str, width: int, hang: int = 0) -> str:
    """Return a line broken between words at a width, with `hang` blanks before all but the first; paths and names stay whole."""
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    return textwrap.fill(
        line.lstrip(" "), width, initial_indent=indent, subsequent_indent=" " * hang,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def plural(count: int, what: str, several: str = "") -> str:
    """Return "1 batch" or "1,000 batches": a number with its noun, which gets an s where `several` does not say."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def keyword_text(name: str, value: str = "...") -> str:
    """Return how a call is given a value under a name: `name=value`, or `**{"return": value}` where Python has that word."""
    return f"{name}={value}" if _is_variable(name) else f"**{{{literal_text(name)}: {value}}}"


def variable_text(name: str, otherwise: str) -> str:
    """Return what a user's variable may be called: as the thing itself, or otherwise, where Python reads no such name."""
    return name if _is_variable(name) else otherwise


def _is_variable(name: str) -> bool:
    is_word = name.isidentifier() and name not in (*keyword.kwlist, "__debug__")
    # Python reads some letters of a name as others: it would be another name
    return is_word and (name.isascii() or unicodedata.is_normalized("NFKC", name))


def literal_text(text: str) -> str:
    """Return a text as Python reads it, in double quotes where nothing in it has to be written otherwise."""
    written = repr(text)
    return f'"{text}"' if written == f"'{text}'" and '"' not in text else written


def with_article(word: str) -> str:
    """Return "a Tensor", "an int", "an LSTM"."""
    spelled = word[:2].isupper()  # letter by letter: an LSTM, a GRU
    return f"{'an' if word[:1] in ('AEFHILMNORSX' if spelled else 'aeioAEIO') else 'a'} {word}"


def a_type(value: object) -> str:
    """Return the class of a value with its article."""
    return with_article(type(value).__name__)


def first_few(names: Sequence[str], most: int) -> str:
    """Return "a, b and 3 more": the first names, and how many others there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def error_line(error: BaseException) -> str:
    """Return an error's class and first line; of one in a worker, before which torch puts its traceback, the line behind that."""
    name = type(error).__name__
    told = f"{name}: {str(error).strip()}".removesuffix(": ")
    raised = (
        re.findall(rf"^(?:[\w.]+\.)?({name}: .+)", told, re.MULTILINE) if "Original Traceback" in told else []
    )
    return str(raised[-1]) if raised else told.splitlines()[0]


def number_or_dash(value: float | None) -> str:
    """Return the value as `number_text` writes it, and a dash where there is none."""
    return "-" if value is None else number_text(value)


def percent_text(share: float) -> str:
    """Return a share in percent with one digit that counts: `0.02%`, `10%`."""
    return f"{float(f'{100 * share:.1g}'):g}%"


def number_text(value: float) -> str:
    """Return the value with four significant digits; NaN and the infinities by name."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if size < 1e7 and value == int(value):
        text = f"{size:,.0f}"
    elif 1e-3 <= size < 1e7:
        text = f"{size:,.{max(0, 3 - math.floor(math.log10(size)))}f}"
    else:
        mantissa, _, power = f"{size:.2e}".partition("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    return f"−{text}" if value < 0 else text


def short_number(value: float) -> str:
    """Return the value with a letter for its thousands, as in 1.2k or 3.4M."""
    if not math.isfinite(value):
        return number_text(value)
    for letter, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}".replace("e+03", "000") + letter
    return f"{value:.3g}"


def bytes_text(value: float | None) -> str:
    """Return bytes with their unit, as in 512 B, 1.5 MiB or 140.4 GiB, and a dash where nobody knows."""
    if value is None:
        return "-"
    units = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
    unit, size = next((each for each in units if abs(value) >= each[1]), ("B", 1.0))
    digits = 0 if size == 1 or abs(value) >= 999.5 * size else 1
    return f"{value / size:,.{digits}f}".removesuffix(".0") + f" {unit}"


def duration_text(seconds: float) -> str:
    """Return a time as 0:42, 1:02:03 or, from two days on, 3 d 4 h."""
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes % 60:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
