# SPDX-License-Identifier: Apache-2.0
"""Applies the rewrites of findings to files: those that keep the bits and those that are right in every variant."""

import codecs
import difflib
import io
import json
import stat
import tokenize
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from truestep.core.atomic_files import replacing_file
from truestep.doctor import markdown
from truestep.doctor.catalogue import checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.finding import Finding, Severity
from truestep.doctor.markdown import parse_markdown
from truestep.doctor.notebook import cell_source, is_python_cell
from truestep.doctor.replacement import SourceEdit, apply_source_edits, why_source_is_no_python


@dataclass(frozen=True)
class FixedFile:
    """One file with its fixes made: `before` and `after` are its text, `findings` what they mend."""

    path: str
    before: str
    after: str
    findings: tuple[Finding, ...]
    left: str = ""  # why the file was not written, if it was not

    def diff(self) -> list[str]:
        """Return the change as a unified diff that `patch` and `git apply` read."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), self.path, self.path
        )
        return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]

    def to_dict(self) -> dict[str, Any]:
        """Return what `--output json` prints of it."""
        told = [{"code": each.code, "line": each.place.line} for each in self.findings]
        return {"path": self.path, "fixed": told, "left": self.left or None, "diff": "".join(self.diff())}


def is_certain_fix(finding: Finding) -> bool:
    """Tell whether a finding's rewrite is right whatever was meant: of a bug, or one that keeps the bits.

    A risk or a question may be what was meant; there the rewrite is a suggestion, printed with the finding.
    """
    check = checks().get(finding.code)
    if check is None or not issubclass(check, SourceCheck) or finding.replacement is None:
        return False
    return check.rewrites == "safe" or (check.rewrites == "fix" and finding.severity is Severity.BUG)


def fix_files(findings: Iterable[Finding], *, write: bool) -> list[FixedFile]:
    """Make the certain rewrites of findings, file by file; with `write`, the files are replaced.

    A rewrite that overlaps another waits for the next reading; one that leaves no Python is not made.
    """
    certain = sorted((each for each in findings if is_certain_fix(each)), key=lambda each: each.place)
    fixed: list[FixedFile] = []
    seen: set[Path] = set()  # by another name a file's text is no longer the one that was read
    for path, group in groupby(certain, key=lambda each: each.place.path):
        if (target := Path(path).resolve()) in seen:
            continue
        seen.add(target)
        of_file = _fix_notebook if path.endswith(".ipynb") else _fix_script
        found = of_file(path, list(group), write)
        if found.findings:
            fixed.append(found)
    return fixed


def _fix_script(path: str, findings: Sequence[Finding], write: bool) -> FixedFile:
    raw = Path(path).read_bytes()
    is_page = Path(path).suffix in markdown.ENDINGS
    encoding = _encoding_of_page(raw) if is_page else tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
    text = raw.decode(encoding)
    after, made = rewritten_by_findings(text, findings, _is_python_page if is_page else _is_python)
    if made and write:
        _replace_file(Path(path), after.encode(encoding))
    return FixedFile(path, text, after, made)


def _encoding_of_page(raw: bytes) -> str:
    return "utf-8-sig" if raw.startswith(codecs.BOM_UTF8) else "utf-8"


def _fix_notebook(path: str, findings: Sequence[Finding], write: bool) -> FixedFile:
    """Rewrite cells; a notebook that is not laid out as Jupyter does is left, for all its lines would change."""
    text = Path(path).read_bytes().decode("utf-8")
    document = json.loads(text)
    end = "\n" if text.endswith("\n") else ""
    if _notebook_json(document) + end != text:
        return FixedFile(path, text, text, tuple(findings), "it is not laid out as Jupyter writes notebooks")
    made: list[Finding] = []
    for number, group in groupby(findings, key=lambda each: each.place.cell):
        cell = document["cells"][number - 1]
        after, here = rewritten_by_findings(cell_source(cell), list(group), is_python_cell)
        cell["source"] = after.splitlines(keepends=True) if isinstance(cell["source"], list) else after
        made += here
    after = _notebook_json(document) + end
    if made and write:
        _replace_file(Path(path), after.encode("utf-8"))
    return FixedFile(path, text, after, tuple(made))


def _notebook_json(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False)


def _is_python(text: str) -> bool:
    return why_source_is_no_python(text, "script") is None


def rewritten_by_findings(
    text: str, findings: Sequence[Finding], is_whole: Callable[[str], bool] = _is_python
) -> tuple[str, tuple[Finding, ...]]:
    """Return the text with as many fixes as go together and leave it whole, and which those are."""
    made: list[Finding] = []
    after = text
    for each in findings:
        trial = [*made, each]
        if _has_overlapping_edits(trial):
            continue
        changed = apply_source_edits(text, _sorted_edits(trial, "\r\n" if "\r\n" in text else "\n"))
        if is_whole(changed):
            made, after = trial, changed
    return after, tuple(made)


def _sorted_edits(findings: Sequence[Finding], newline: str) -> list[SourceEdit]:
    edits = sorted(edit for each in findings if each.replacement for edit in each.replacement.edits)
    return [replace(each, text=each.text.replace("\n", newline)) for each in edits]


def _has_overlapping_edits(findings: Sequence[Finding]) -> bool:
    edits = _sorted_edits(findings, "\n")
    spans = [((each.line, each.column), (each.end_line, each.end_column)) for each in edits]
    return any(a[1] > b[0] or a == b for a, b in pairwise(spans))


def _is_python_page(text: str) -> bool:
    return all(_is_python(each.text) for each in parse_markdown(text).programs)


def _replace_file(path: Path, content: bytes) -> None:
    """Put content in a file's place at once, through a link too, with the permissions it had."""
    target = path.resolve()
    with replacing_file(target, stat.S_IMODE(target.stat().st_mode)) as file:
        file.write(content)
