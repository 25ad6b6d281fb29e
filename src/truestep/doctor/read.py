# SPDX-License-Identifier: Apache-2.0
"""Reads source files and reports what the source checks find; imports no torch."""

import ast
import contextlib
import re
import sys
import time
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from truestep.doctor.catalogue import source_checks, topic_of
from truestep.doctor.check import At, SourceCheck
from truestep.doctor.files import files_of
from truestep.doctor.finding import Abstention, Failure, Finding, Place, Severity
from truestep.doctor.notebook import Notebook, parse_notebook
from truestep.doctor.replacement import Replacement, apply_edits, parsed, replacement
from truestep.doctor.selection import Baseline, Ignores, Selection
from truestep.doctor.source.guards import is_for_other_versions, is_meant_to_fail
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import RewriteError

# A file without any of these trains nothing: it is not even parsed.
_RELEVANT = re.compile(rb"torch|\.backward\(\)|onnxruntime|nvidia-smi|CUDA_VISIBLE_DEVICES|apex")
_NESTING = 12_000


@dataclass
class Reading:
    """What reading some files gave."""

    findings: list[Finding] = field(default_factory=list)
    abstentions: list[Abstention] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # path, reason
    num_files: int = 0  # looked at, the unreadable among them
    num_hidden: int = 0  # by comments and the baseline
    seconds: float = 0.0
    lines: dict[Place, str] = field(default_factory=dict)  # the text at each finding

    def worst(self) -> Severity | None:
        """Return the gravest severity found."""
        return min((finding.severity for finding in self.findings), key=lambda each: each.rank, default=None)


def read_paths(paths: Sequence[Path], selection: Selection | None = None) -> Reading:
    """Read files and folders with every source check that is wanted.

    Raises:
        OptionError: a path that does not exist.
    """
    selection = selection or Selection()
    started = time.perf_counter()
    reading = Reading()
    wanted = [check for check in source_checks() if selection.wants(check.code)]
    baseline = Baseline(selection.baseline)
    for path in files_of(paths, selection):
        _read_file(path, wanted, reading)
        reading.num_files += 1
    kept = [each for each in reading.findings if not baseline.hides(each, reading.lines.get(each.place, ""))]
    reading.num_hidden += len(reading.findings) - len(kept)
    reading.findings = sorted(kept, key=lambda finding: (finding.place, finding.code))
    reading.seconds = time.perf_counter() - started
    return reading


def read_text(text: str, path: str = "<text>", checks: Iterable[SourceCheck] | None = None) -> Reading:
    """Read one text with the given checks, or all."""
    reading = Reading(num_files=1)
    _read_source(text, path, source_checks() if checks is None else checks, reading)
    reading.findings.sort(key=lambda finding: (finding.place, finding.code))
    return reading


def _read_file(path: Path, checks: Iterable[SourceCheck], reading: Reading) -> None:
    try:
        raw = path.read_bytes()
        if not _RELEVANT.search(raw.replace(b"\0", b"")):  # also in UTF-16, which Python does not read
            return
        if path.suffix == ".ipynb":
            _read_notebook(parse_notebook(raw.decode("utf-8-sig")), str(path), checks, reading)
            return
        with tokenize.open(path) as file:
            text = file.read()
    except (OSError, SyntaxError, ValueError) as error:
        reading.unreadable.append((str(path), f"{type(error).__name__}: {error}"))
        return
    _read_source(text, str(path), checks, reading)


def _read_notebook(notebook: Notebook, path: str, checks: Iterable[SourceCheck], reading: Reading) -> None:
    """Read the joined cells, and give each finding its place in its cell."""
    joined = Reading()
    _read_source(notebook.text, path, checks, joined)
    reading.findings += [notebook.finding(each) for each in joined.findings]
    reading.lines |= {notebook.place(place): line for place, line in joined.lines.items()}
    reading.abstentions += [replace(each, place=notebook.place(each.place)) for each in joined.abstentions]
    reading.failures += joined.failures
    reading.unreadable += [(f"{path}:{number}", reason) for number, reason in notebook.unreadable]
    reading.num_hidden += joined.num_hidden


def _read_source(text: str, path: str, checks: Iterable[SourceCheck], reading: Reading) -> None:
    try:
        module = SourceModule(text, path)
    except (SyntaxError, ValueError, RecursionError) as error:
        reading.unreadable.append((path, f"{type(error).__name__}: {error}"))
        return
    ignores = Ignores(text)
    with _room_to_nest():
        for check in checks:
            if not check.words or any(word in text for word in check.words):
                _apply(check, module, ignores, reading)


@contextlib.contextmanager
def _room_to_nest() -> Iterator[None]:
    """Let code that Python can still compile, with thousands of elifs say, be walked by recursion."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _NESTING))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _cut_short(check: SourceCheck, module: SourceModule) -> Iterator[Abstention]:
    """Say so where a check that goes by the order of calls was not shown all of it."""
    for trace in module.followed if module.was_followed else ():
        if not trace.complete:
            reason = "the functions call one another in too many ways to be followed to the end"
            yield Abstention(check.code, _place(module, trace.root), reason)


def _apply(check: SourceCheck, module: SourceModule, ignores: Ignores, reading: Reading) -> None:
    seen: set[tuple[int, str]] = set()
    module.was_followed = False
    try:
        for found in check.read(module):
            place = _place(module, found.node)
            if not isinstance(found, At):
                reading.abstentions.append(Abstention(check.code, place, found.reason))
                continue
            if (place.line, check.code) in seen or _is_excused(check, module, found.node):
                continue
            seen.add((place.line, check.code))
            finding = check.finding(
                place,
                found.message,
                found.severity,
                evidence=found.evidence,
                replacement=_rewritten(check, module, found.node),
            )
            if ignores.hide(finding):
                reading.num_hidden += 1
                continue
            reading.findings.append(finding)
            reading.lines[place] = module.lines[place.line - 1] if place.line <= len(module.lines) else ""
        reading.abstentions += _cut_short(check, module)
    except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others find
        reading.failures.append(Failure(check.code, module.path, f"{type(error).__name__}: {error}"))


def _is_excused(check: SourceCheck, module: SourceModule, node: ast.AST) -> bool:
    """Tests of errors are to have them, and code for old versions is to be old."""
    dated = topic_of(type(check)) == "deprecated"
    return is_meant_to_fail(module, node) or (dated and is_for_other_versions(module, node))


def _rewritten(check: SourceCheck, module: SourceModule, node: ast.AST) -> Replacement | None:
    """Return the change that mends a finding, if what it leaves is Python."""
    try:
        change = replacement(module.text, check.rewrite(module, node))
        if change is not None:
            parsed(apply_edits(module.text, change.edits))
    except (RewriteError, SyntaxError):
        return None
    return change


def _place(module: SourceModule, node: ast.AST) -> Place:
    return Place(module.path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
