# SPDX-License-Identifier: Apache-2.0
"""Reads source files and reports what the source checks find; imports no torch."""

import ast
import contextlib
import gc
import re
import sys
import time
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from truestep.doctor import markdown
from truestep.doctor.catalogue import source_checks, topic_of
from truestep.doctor.check import At, SourceCheck
from truestep.doctor.files import files_of
from truestep.doctor.finding import Abstention, Failure, Finding, Place, Severity
from truestep.doctor.markdown import Markdown, parse_markdown
from truestep.doctor.notebook import NotebookText, parse_notebook
from truestep.doctor.replacement import Replacement, apply_edits, parsed, replacement
from truestep.doctor.selection import Baseline, Ignores, Selection
from truestep.doctor.source.guards import is_for_other_versions, is_meant_to_fail
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.project import Project, Texts
from truestep.doctor.source.rewriting import RewriteError

# A file without any of these trains nothing: it is not even parsed.
_RELEVANT = re.compile(rb"torch|\.backward\(\)|onnxruntime|nvidia-smi|CUDA_VISIBLE_DEVICES|apex")
_NESTING = 12_000
PATIENCE_SECONDS = 3.0
Waiting = Callable[[int, int], None]
_CELL = re.compile(r"\.\w+:\d+$")  # a cell or a block, not a file


@dataclass
class SourceReading:
    """What reading some files gave."""

    findings: list[Finding] = field(default_factory=list)
    abstentions: list[Abstention] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # path, reason
    num_files: int = 0  # looked at, the unreadable among them
    num_hidden: int = 0  # by comments and the baseline
    seconds: float = 0.0
    lines: dict[Place, str] = field(default_factory=dict)  # the text at each finding

    @property
    def num_read(self) -> int:
        """How many files were read; a notebook counts although one of its cells was not."""
        return self.num_files - len(self.lost_files)

    @property
    def lost_files(self) -> list[str]:
        """The files that could not be read at all; cells of notebooks are not among them."""
        return [path for path, _ in self.unreadable if not _CELL.search(path)]

    def worst(self) -> Severity | None:
        """Return the gravest severity found."""
        return min((finding.severity for finding in self.findings), key=lambda each: each.rank, default=None)


def read_paths(
    paths: Sequence[Path], selection: Selection | None = None, waiting: Waiting | None = None
) -> SourceReading:
    """Read files and folders with every source check that is wanted.

    `waiting` is called with the number of files read and of all, every few seconds.

    Raises:
        OptionError: a path that does not exist.
    """
    with _without_collector():
        return _read_paths(paths, selection or Selection(), waiting)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Let the garbage collector rest: a tree of a million nodes that all stay would be gone through again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_paths(paths: Sequence[Path], selection: Selection, waiting: Waiting | None) -> SourceReading:
    started = told = time.perf_counter()
    reading = SourceReading()
    wanted = [check for check in source_checks() if selection.wants(check.code)]
    baseline = Baseline(selection.baseline)
    project = Project()
    files = [_added(path, project, reading) for path in files_of(paths, selection)]
    project.link()
    for file in files:
        reading.num_files += 1
        if file is not None:
            _read(file, wanted, reading)
        is_last = reading.num_files == len(files)
        if waiting is not None and not is_last and time.perf_counter() - told > PATIENCE_SECONDS:
            told = time.perf_counter()
            waiting(reading.num_files, len(files))
    kept = [each for each in reading.findings if not baseline.hides(each, reading.lines.get(each.place, ""))]
    reading.num_hidden += len(reading.findings) - len(kept)
    reading.findings = sorted(kept, key=lambda finding: (finding.place, finding.code))
    reading.seconds = time.perf_counter() - started
    return reading


def read_text(text: str, path: str = "<text>", checks: Iterable[SourceCheck] | None = None) -> SourceReading:
    """Read one text with the given checks, or all."""
    return read_texts({path: text}, checks)


def read_texts(texts: Mapping[str, str], checks: Iterable[SourceCheck] | None = None) -> SourceReading:
    """Read several texts, by path, as the files of one project."""
    reading = SourceReading(num_files=len(texts))
    project = Project(Texts(texts))
    files = [_parsed(text, path, project, reading) for path, text in texts.items()]
    project.link()
    wanted = source_checks() if checks is None else list(checks)
    for file in files:
        if file is not None:
            _read(file, wanted, reading)
    reading.findings.sort(key=lambda finding: (finding.place, finding.code))
    return reading


@dataclass
class _File:
    """One file of a project that is read."""

    module: SourceModule
    project: Project
    blocks: NotebookText | Markdown | None = None  # where it is no script


def _added(path: Path, project: Project, reading: SourceReading) -> _File | None:
    """Parse a file into the project; what can't be read is named."""
    try:
        raw = path.read_bytes()
        if not _RELEVANT.search(raw.replace(b"\0", b"")):  # also in UTF-16, which Python does not read
            return None
        if path.suffix == ".ipynb" or path.suffix in markdown.ENDINGS:
            return _added_blocks(path, raw.decode("utf-8-sig"), project, reading)
        with tokenize.open(path) as opened:
            text = opened.read()
    except (OSError, SyntaxError, ValueError) as error:
        reading.unreadable.append((str(path), f"{type(error).__name__}: {error}"))
        return None
    return _parsed(text, str(path), project, reading)


def _added_blocks(path: Path, raw: str, project: Project, reading: SourceReading) -> _File | None:
    """Add a notebook or a page with Python blocks; a cell or block that is no Python is named."""
    blocks = parse_notebook(raw) if path.suffix == ".ipynb" else parse_markdown(raw)
    reading.unreadable += [(f"{path}:{number}", reason) for number, reason in blocks.unreadable]
    file = _parsed(blocks.text, str(path), project, reading)
    if file is None or isinstance(blocks, Markdown):
        return file and replace(file, blocks=blocks)
    return _of_notebook(file, blocks)


def _of_notebook(file: _File, notebook: NotebookText) -> _File:
    """Note which expressions are the last of their cells: what they give is shown."""
    last: dict[int, ast.stmt] = {}
    for statement in file.module.tree.body:
        last[notebook.place(Place("", statement.lineno)).cell] = statement
    file.module.shown.update(each for each in last.values() if isinstance(each, ast.Expr))
    return replace(file, blocks=notebook)


def _parsed(text: str, path: str, project: Project, reading: SourceReading) -> _File | None:
    try:
        return _File(project.add(text, path), project)
    except (SyntaxError, ValueError, RecursionError) as error:
        reading.unreadable.append((path, f"{type(error).__name__}: {error}"))
        return None


def _read(file: _File, checks: Iterable[SourceCheck], reading: SourceReading) -> None:
    """Apply the checks to one file; a finding in a notebook or a page has its place there."""
    found = SourceReading()
    with _room_to_nest():
        for check in checks:
            if _may_have(check, file.module):
                _apply(check, file.module, found)
    if file.blocks is not None:
        _put_into_blocks(found, file.module.path, file.blocks)
    _take(found, reading)


def _may_have(check: SourceCheck, module: SourceModule) -> bool:
    """Tell whether one of the words without which a fault can't be stands in a file, or where it leads to."""
    return not check.words or any(word in module.text for word in check.words) or _program_has(check, module)


def _program_has(check: SourceCheck, module: SourceModule) -> bool:
    """Tell whether the files that a file is linked with hold one of the words; each word is looked for once."""
    known = module.words_of_program
    for word in check.words:
        if word not in known:
            known[word] = any(word in each.text for each in module.linked)
    return any(known[word] for word in check.words)


def _put_into_blocks(found: SourceReading, path: str, blocks: NotebookText | Markdown) -> None:
    def place_of(place: Place) -> Place:
        return blocks.place(place) if place.path == path else place

    found.findings = [blocks.finding(each) if each.place.path == path else each for each in found.findings]
    moved = ((place, place_of(place), line) for place, line in found.lines.items())
    found.lines = {after: " " * (after.column - before.column) + line for before, after, line in moved}
    found.abstentions = [replace(each, place=place_of(each.place)) for each in found.abstentions]


def _take(found: SourceReading, reading: SourceReading) -> None:
    """Add what a file gave; what was met from another file already is told once."""
    known = {(each.code, each.place) for each in reading.findings}
    reading.findings += [each for each in found.findings if (each.code, each.place) not in known]
    reading.lines |= found.lines
    reading.abstentions += found.abstentions
    reading.failures += found.failures
    reading.num_hidden += found.num_hidden


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


def _apply(check: SourceCheck, module: SourceModule, reading: SourceReading) -> None:
    seen: set[tuple[str, int]] = set()
    module.was_followed = False
    try:
        for found in check.read(module):
            home = module.home(found.node)
            place = _place(home, found.node)
            if not isinstance(found, At):
                reading.abstentions.append(Abstention(check.code, place, found.reason))
            elif (place.path, place.line) not in seen and not _is_excused(check, home, found.node):
                seen.add((place.path, place.line))
                _report(check, home, found, reading)
        reading.abstentions += _cut_short(check, module)
    except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others find
        reading.failures.append(Failure(check.code, module.path, f"{type(error).__name__}: {error}"))


def _report(check: SourceCheck, module: SourceModule, found: At, reading: SourceReading) -> None:
    """Add a finding, unless a comment hides it."""
    place = _place(module, found.node)
    severity = found.severity
    if severity is Severity.BUG and _rests_on_a_guess(module, found.node):
        severity = Severity.RISK
    finding = check.finding(
        place,
        found.message,
        severity,
        evidence=found.evidence,
        replacement=_rewritten(check, module, found.node, reading),
    )
    if Ignores(module.text).hide(finding):
        reading.num_hidden += 1
        return
    reading.findings.append(finding)
    reading.lines[place] = module.lines[place.line - 1] if place.line <= len(module.lines) else ""


def _rests_on_a_guess(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether only a name says that this is an optimizer, a model or a loader: then it is no certain fault."""
    if not isinstance(node, ast.Call):
        return False
    subjects = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    subjects += [each for each in node.args[:1] if isinstance(each, ast.Name | ast.Attribute)]
    kinds = [
        each
        for each in subjects
        if module.kind(each) in ("optimizer", "scheduler", "scaler", "module", "ddp")
    ]
    return any(module.is_guess(each) for each in kinds)


def _is_excused(check: SourceCheck, module: SourceModule, node: ast.AST) -> bool:
    """Tests of errors are to have them, and code for old versions is to be old."""
    dated = topic_of(type(check)) == "deprecated"
    return is_meant_to_fail(module, node) or (dated and is_for_other_versions(module, node))


def _rewritten(
    check: SourceCheck, module: SourceModule, node: ast.AST, reading: SourceReading
) -> Replacement | None:
    """Return the change that mends a finding, if what it leaves is Python; one that fails loses the change only."""
    try:
        change = replacement(module.text, check.rewrite(module, node))
        if change is not None:
            parsed(apply_edits(module.text, change.edits))
    except (RewriteError, SyntaxError):
        return None
    except Exception as error:  # noqa: BLE001 - the finding is true whether or not it can be mended here
        reading.failures.append(Failure(check.code, module.path, f"{type(error).__name__}: {error}"))
        return None
    return change


def _place(module: SourceModule, node: ast.AST) -> Place:
    """Return where a node begins and how far it goes on its first line; the tree counts bytes, a place characters."""
    first = getattr(node, "lineno", 1)
    raw = module.lines[first - 1].encode() if first <= len(module.lines) else b""
    start = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", 0) == first else len(raw)
    before, here = (len(part.decode("utf-8", "ignore")) for part in (raw[:start], raw[start:end].rstrip()))
    return Place(module.path, first, before + 1, width=here if hasattr(node, "lineno") else 0)
