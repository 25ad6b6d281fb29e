# SPDX-License-Identifier: Apache-2.0
"""Which checks are wanted: options, `[tool.truestep]`, comments in the code, and a baseline."""

import io
import json
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from truestep.core.atomic_files import explain_unwritable, read_regular_file
from truestep.core.errors import OptionError, names_hint
from truestep.core.os_specific import relative_path
from truestep.doctor.catalogue import checks
from truestep.doctor.finding import Finding
from truestep.doctor.retired import retired_code, retired_codes, retired_line

_COMMENT = re.compile(r"#\s*truestep:\s*ignore(?![\w-])\s*(?:\[(?P<codes>[\w\s,-]*)\])?", re.IGNORECASE)
_WHOLE_FILE = re.compile(r"#\s*truestep:\s*ignore-file(?![\w-])", re.IGNORECASE)
_BLANK = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
BASELINE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class CheckSelection:
    """Codes, or beginnings of codes (`GRAD`), to report and to leave out."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # files and folders that `read` passes over
    baseline: Path | None = None
    preview: bool = False  # whether checks on trial are used

    def passed_over(self) -> list[str]:
        """Return a line for each retired check, and each on trial, that is named and not used."""
        named = (*self.select, *self.ignore)
        lines = [
            retired_line(code)
            for each in named
            if not _is_code_beginning(each)
            for code in retired_codes(each)
        ]
        trial = [code for code in self.select if code in checks() and checks()[code].is_preview]
        lines += [
            f"{code} is on trial: it is used with --preview, or preview = true in [tool.truestep]."
            for code in trial
            if not self.preview
        ]
        return list(dict.fromkeys(lines))

    def wants(self, code: str) -> bool:
        """Tell whether findings of this code are reported; the longer, the stronger."""
        if not self.preview and code in checks() and checks()[code].is_preview:
            return False
        chosen = max((len(each) for each in self.select if code.startswith(each)), default=-1)
        left_out = max((len(each) for each in self.ignore if code.startswith(each)), default=-1)
        if self.select and chosen < 0:
            return False
        return left_out < 0 or chosen > left_out


def configured_selection(
    start: Path, select: list[str], ignore: list[str], baseline: Path | None, *, preview: bool = False
) -> CheckSelection:
    """Return the selection of the command line, over that of the nearest `pyproject.toml`.

    Raises:
        OptionError: a code that no check begins with, or a key that does not exist.
    """
    found = _selection_from_pyproject(start)
    selection = replace(
        found,
        select=_parse_codes(select) or found.select,
        ignore=_parse_codes(ignore) + found.ignore,
        baseline=baseline or found.baseline,
        preview=preview or found.preview,
    )
    return _demand_known_codes(selection)


def selection_of(select: Sequence[str], ignore: Sequence[str]) -> CheckSelection:
    """Return a selection that takes nothing from `pyproject.toml`.

    Raises:
        OptionError: a code that no check begins with.
    """
    given = [[each] if isinstance(each, str) else list(each) for each in (select, ignore)]
    return _demand_known_codes(CheckSelection(select=_parse_codes(given[0]), ignore=_parse_codes(given[1])))


def _demand_known_codes(selection: CheckSelection) -> CheckSelection:
    for code in (*selection.select, *selection.ignore):
        if not _is_code_beginning(code) and not retired_codes(code):
            beginnings = {each.rstrip("0123456789") for each in checks()}
            known = checks() if any(character.isdigit() for character in code) else beginnings
            close = names_hint(code, known).partition("There are")[0]
            listed = ", ".join(sorted(beginnings))
            raise OptionError(
                f"No check's code begins with {code!r}. {close}They begin with: {listed}; "
                "`truestep checks` lists all."
            )
    return selection


def _is_code_beginning(code: str) -> bool:
    return any(each.startswith(code) for each in checks())


def _parse_codes(given: list[str]) -> tuple[str, ...]:
    names = (
        {check.name(): code for code, check in checks().items()} if any("-" in each for each in given) else {}
    )
    parts = [part.strip() for each in given for part in each.split(",") if part.strip()]
    return tuple(names.get(part.lower(), part.upper()) for part in parts)


def _selection_from_pyproject(start: Path) -> CheckSelection:
    start = start.resolve()
    for folder in [start, *start.parents]:
        file = folder / "pyproject.toml"
        if file.is_file():
            try:
                tools = tomllib.loads(file.read_text("utf-8")).get("tool", {})
            except (OSError, ValueError) as error:
                raise OptionError(f"{file} can't be read: {error}") from error
            table = tools.get("truestep") if isinstance(tools, dict) else None
            if table is not None:
                return _selection_from_table(table, file)
    return CheckSelection()


def _selection_from_table(table: object, file: Path) -> CheckSelection:
    if not isinstance(table, dict):
        raise OptionError(f"{file}: tool.truestep must be a table, as in [tool.truestep], not {table!r}")
    known = ("baseline", "exclude", "ignore", "preview", "select")
    for key, value in table.items():
        if key not in known:
            raise OptionError(f"{file}: [tool.truestep] has no key {key!r}. {names_hint(key, known)}")
        if key == "baseline" and not isinstance(value, str):
            raise OptionError(f"{file}: [tool.truestep] baseline must be the name of a file, not {value!r}")
        if key == "preview" and not isinstance(value, bool):
            raise OptionError(f"{file}: [tool.truestep] preview must be true or false, not {value!r}")
        if key not in ("baseline", "preview") and not (
            isinstance(value, list) and all(isinstance(each, str) and each for each in value)
        ):
            raise OptionError(
                f"{file}: [tool.truestep] {key} must be a list of strings with something in them, not {value!r}"
            )
    listed = {key: [str(each) for each in value] for key, value in table.items() if isinstance(value, list)}
    return CheckSelection(
        select=_parse_codes(listed.get("select", [])),
        ignore=_parse_codes(listed.get("ignore", [])),
        exclude=tuple(listed.get("exclude", [])),
        baseline=file.parent / str(table["baseline"]) if "baseline" in table else None,
        preview=bool(table.get("preview", False)),
    )


@lru_cache(maxsize=64)
def ignore_comments_in(text: str) -> "IgnoreComments":
    """Return what the comments of a file hide; its text is gone through once, however many findings ask."""
    return IgnoreComments(text)


class IgnoreComments:
    """The `# truestep: ignore[CODE]` comments of one file.

    At the end of a line a comment holds for the whole statement that ends there, on a line of its own
    for the next statement's first line.
    """

    def __init__(self, text: str) -> None:
        self.lines: dict[int, set[str] | None] = {}
        self.whole_file = False
        if "truestep:" not in text:
            return
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, SyntaxError):
            return
        waiting: list[set[str] | None] = []  # of lines of their own
        here: list[tuple[int, set[str] | None]] = []  # in the statement that is being read: line, codes
        first = 0
        for token in tokens:
            if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
                if first:
                    here.append((token.start[0], _codes_in_comment(match)))
                else:
                    waiting.append(_codes_in_comment(match))
            elif token.type == tokenize.COMMENT:
                self.whole_file |= _WHOLE_FILE.search(token.string) is not None
            elif token.type == tokenize.NEWLINE:
                self._note_statement_comments(first, token.start[0], waiting, here)
                waiting, here, first = [], [], 0
            elif token.type not in _BLANK and not first:
                first = token.start[0]

    def _note_statement_comments(
        self, first: int, last: int, waiting: list[set[str] | None], here: list[tuple[int, set[str] | None]]
    ) -> None:
        """Note the comments of one statement."""
        for codes in waiting:
            self._add_hidden_codes(first, codes)
        for line, codes in here:
            self._add_hidden_codes(line, codes)
            if line == last != first:
                self._add_hidden_codes(first, codes)

    def _add_hidden_codes(self, line: int, codes: set[str] | None) -> None:
        before = self.lines.get(line, set())
        self.lines[line] = None if codes is None or before is None else before | codes

    def retired(self) -> set[str]:
        """Return the codes of retired checks that the comments still name."""
        named = {code for codes in self.lines.values() for code in codes or ()}
        return {code for each in named if (code := retired_code(each)) is not None}

    def hide(self, finding: Finding) -> bool:
        """Tell whether a comment hides this finding."""
        if self.whole_file:
            return True
        if finding.place.line not in self.lines:
            return False
        codes = self.lines[finding.place.line]
        return codes is None or any(
            finding.code.startswith(code) or finding.name.upper() == code for code in codes
        )


def _codes_in_comment(match: re.Match[str]) -> set[str] | None:
    """Return the codes, names and beginnings of codes in a comment; None where it names none and means all."""
    codes = match["codes"]
    return None if codes is None else {part.strip().upper() for part in codes.split(",") if part.strip()}


def _fingerprint(finding: Finding, line_text: str, folder: Path) -> str:
    """Return what stays the same when lines are added above, or the file is named from elsewhere."""
    path = Path(relative_path(folder, finding.place.path)).as_posix()
    return f"{finding.code}|{path}|{' '.join(line_text.split())}"


def write_baseline(path: Path, findings: list[tuple[Finding, str]]) -> None:
    """Write the findings of today, so that only new ones are reported from now on.

    Raises:
        OptionError: a place that can't be written to.
    """
    known = Counter(_fingerprint(finding, text, path.parent) for finding, text in findings)
    document = {"schema_version": BASELINE_VERSION, "findings": dict(sorted(known.items()))}
    with explain_unwritable("The baseline", path):
        path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


class FindingsBaseline:
    """Findings that were there before; each is hidden as often as it was counted."""

    def __init__(self, path: Path | None) -> None:
        self.left: Counter[str] = Counter()
        self.folder = Path()
        if path is None:
            return
        self.folder = path.parent
        try:
            document = json.loads(read_regular_file(path.resolve()))
            self.left.update({str(key): int(count) for key, count in document["findings"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise OptionError(
                f"{path} is no baseline ({error}). Write one with: truestep read --write-baseline {path}"
            ) from error

    def retired(self) -> set[str]:
        """Return the codes of retired checks that the baseline still names."""
        return {code for key in self.left if (code := retired_code(key.partition("|")[0])) is not None}

    def hides(self, finding: Finding, line_text: str) -> bool:
        """Tell whether this finding was there before, and count it off."""
        if not self.left:
            return False
        key = _fingerprint(finding, line_text, self.folder)
        if self.left[key] > 0:
            self.left[key] -= 1
            return True
        return False
