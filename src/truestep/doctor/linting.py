# SPDX-License-Identifier: Apache-2.0
"""Reads source files and reports what the source checks find; imports no torch."""

import ast
import bisect
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from truestep.core.garbage_collection import pause_garbage_collector
from truestep.doctor import markdown
from truestep.doctor.catalogue import source_checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.files import files_to_read
from truestep.doctor.findings_cache import (
    cache_source_reading,
    cached_source_reading,
    forget_oldest_source_readings,
    source_reading_cache_key,
)
from truestep.doctor.markdown import Markdown, MarkdownPage, parse_markdown
from truestep.doctor.notebook import NotebookText, cell_marker_lines, parse_notebook
from truestep.doctor.parallel_work import (
    ForkedProcesses,
    equal_shares,
    is_bottleneck_task,
    is_worth_multiprocessing,
    map_in_processes,
)
from truestep.doctor.read_progress import ReadTally, Waiting, count_source_read
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.replacement import parse_source
from truestep.doctor.selection import CheckSelection, FindingsBaseline
from truestep.doctor.source.entries import ToldReach
from truestep.doctor.source.import_units import SourceUnit, idle_source_units, source_units_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.path_of_import import ImportPlaces, SourceDisk, SourceTexts, source_file_text
from truestep.doctor.source.project import SourceProject
from truestep.doctor.source_check_runner import apply_checks
from truestep.doctor.torch_version_pins import TorchPins

Result = TypeVar("Result")

# A file without any of these trains nothing: no check is asked of it.
_RELEVANT = re.compile(
    rb"torch|\.backward\(\)|onnxruntime|nvidia-smi|CUDA_VISIBLE_DEVICES|apex|add_argument|\.shuffle\("
    rb"|metric_for_best_model|score_function"
)

_BY_TEXT = re.compile(rb"import_module|__import__|runpy|instantiate|(?<![.\w])(exec|eval|locate)\(")
_OF_ROOT = (".git", "pyproject.toml", "setup.py", "setup.cfg")


def read_paths(
    paths: Sequence[Path],
    selection: CheckSelection | None = None,
    waiting: Waiting | None = None,
    *,
    cache: Path | None = None,
) -> SourceReading:
    """Read files and folders with every source check that is wanted.

    Args:
        paths: files, and folders beneath which every `.py` and `.ipynb` file is read.
        selection: codes, excluded files, a baseline.
        waiting: called with the number of files read and of all, every few seconds.
        cache: a folder where what is found is kept, and taken from as long as no file that it depends on changes.

    Raises:
        OptionError: a path that does not exist.
    """
    global _places
    selection = selection or CheckSelection()
    started = time.perf_counter()
    wanted = [check for check in source_checks() if selection.wants(check.code)]
    baseline = FindingsBaseline(selection.baseline)
    files = list(files_to_read(paths, selection))
    relevant = [each for each in files if _is_relevant_file(each)]
    known = set(relevant)
    of_repository = any(map(_is_repository_root, paths))
    in_sight = of_repository and not any(map(_has_dynamic_names, relevant))
    tops = [str(each) for each in paths if each.is_dir()]
    _places = ImportPlaces(SourceDisk(), of_repository=of_repository, users_in_sight=in_sight, tops=tops)
    units = source_units_of(relevant, _places) + idle_source_units(
        [each for each in files if each not in known]
    )
    reading = SourceReading()
    tally = ReadTally(files, waiting)
    for part in _read_units(units, wanted, cache, tally):
        reading.add(part)
    tally.end()
    _places = None
    since = {check.code: check.gone_since for check in wanted}
    pins = TorchPins()
    reading.findings = [pins.judged(each, since.get(each.code, ())) for each in reading.findings]
    shown = [each for each in reading.findings if not baseline.hides(each, reading.lines.get(each.place, ""))]
    reading.num_hidden += len(reading.findings) - len(shown)
    reading.findings = sorted(shown, key=lambda finding: (finding.place, finding.code))
    reading.seconds = time.perf_counter() - started
    reading.retired |= baseline.retired()
    return reading


def _is_repository_root(path: Path) -> bool:
    """Tell the root of a repository: a training that none of its files holds is none of it."""
    return any((path / name).exists() for name in _OF_ROOT)


def _has_dynamic_names(path: Path) -> bool:
    """Tell whether a file may take others, or what they hold, by names that it puts together."""
    try:
        return bool(_BY_TEXT.search(path.read_bytes()))
    except OSError:
        return True


def _is_relevant_file(path: Path) -> bool:
    """Tell whether a file may train something; one that can't be opened is to be named."""
    try:
        return bool(
            _RELEVANT.search(path.read_bytes().replace(b"\0", b""))
        )  # also UTF-16, which Python does not read
    except OSError:
        return True


def _read_units(
    units: list[SourceUnit], wanted: list[SourceCheck], cache: Path | None, tally: ReadTally
) -> Iterator[SourceReading]:
    """Yield what each unit gives: as it was kept, or read anew, several at a time."""
    codes = ",".join(check.code for check in wanted)
    scope = _places.scope if _places is not None else ""
    keys = {
        unit: source_reading_cache_key(unit.digest, codes, scope, *map(str, unit.named))
        for unit in units
        if cache and unit.digest
    }
    found = {
        unit: before
        for unit in keys
        if cache and (before := cached_source_reading(cache, keys[unit])) is not None
    }
    new = [unit for unit in units if unit not in found]
    tally.add([path for unit in found for path in unit.named])
    sizes = [unit.num_bytes for unit in new]
    tasks = [(unit, wanted, is_bottleneck_task(unit.num_bytes, sizes)) for unit in new]
    parts = map_in_processes(_read_unit, tasks, sizes, meanwhile=tally.tell)
    for unit, part in zip(new, parts, strict=True):
        found[unit] = part
        if cache is not None and unit in keys and not part.failures:
            cache_source_reading(cache, keys[unit], part)
    if cache is not None and new:
        forget_oldest_source_readings(cache)
    yield from (found[unit] for unit in units)


def _read_unit(unit: SourceUnit, wanted: list[SourceCheck], is_large: bool = False) -> SourceReading:
    """Read files together; where that fails, each by itself, so that one does not hide what the others give."""
    try:
        return _read_files_together(unit, wanted, is_large)
    except Exception as error:  # noqa: BLE001 - whatever one file brings about, the others are read
        reading = SourceReading(num_files=len(unit.named) == 1)
        if len(unit.named) == 1:
            reading.note_unreadable_file(str(unit.named[0]), error)
        else:
            for path in unit.named:
                reading.add(_read_unit(replace(unit, named=(path,), digest=""), wanted))
        return reading


def _read_files_together(unit: SourceUnit, wanted: list[SourceCheck], is_large: bool) -> SourceReading:
    global _linked
    with pause_garbage_collector():
        if unit.is_idle:
            return _report_parse_errors(unit)
        reading, project = SourceReading(), SourceProject(places=_places)
        files = [_add_file_to_project(path, project, reading) for path in unit.named]
        project.link()
        _linked = list(zip(unit.named, files, strict=True))
        named = {part.module for parts in files for part in parts}
        others = [module for module in project.modules.values() if module not in named]
        _linked += [(None, [_ReadProgram(module, project)]) for module in others]
        for part in (
            _apply_in_processes(project, wanted)
            if is_large
            else [_apply_checks_to_files(0, len(_linked), wanted)]
        ):
            reading.add(part)
        _linked = []
        project.forget()
    return reading


# The files of the unit that is read now, with the programs in each, parsed and linked; those without a path are not to be read
# themselves. Processes that are forked to share the unit find it here.
_linked: "list[tuple[Path | None, list[_ReadProgram]]]" = []

# Which files imports mean, as found for the units of the reading at hand. Processes that are forked for it find it here.
_places: ImportPlaces | None = None


def _apply_in_processes(project: SourceProject, wanted: list[SourceCheck]) -> Iterator[SourceReading]:
    """Follow the program and apply the checks in several processes, each of which follows what its files need."""
    sizes = [sum(len(each.module.text) for each in programs) for _, programs in _linked]
    shares = equal_shares(sizes)
    sizes = [sum(sizes[start:end]) for start, end in shares]
    if not is_worth_multiprocessing(sizes):
        yield _apply_checks_to_files(0, len(_linked), wanted)
        return
    project.entries.prepare()  # what all need is found before they part
    with ForkedProcesses(len(shares), meanwhile=lambda: None) as forked:
        reached = [each for found in forked.share(_follow_from_files, shares, sizes) for each in found]
        forked.tell(_take_reached, reached)
        yield from forked.share(_apply_checks_to_files, [(*share, wanted) for share in shares], sizes)


def _follow_from_files(start: int, end: int) -> list[ToldReach]:
    """Follow the program from where it is entered in some of the files at hand."""
    programs = [each for _, programs in _linked[start:end] for each in programs]
    return [told for each in programs for told in each.project.entries.told_of(each.module.tree)]


def _take_reached(reached: list[ToldReach]) -> None:
    """Take what other processes found."""
    project = next(each.project for _, programs in _linked for each in programs)
    project.entries.take(reached)


def _apply_checks_to_files(start: int, end: int, wanted: list[SourceCheck]) -> SourceReading:
    """Apply the checks to those of some of the files at hand that are to be read."""
    reading = SourceReading()
    for path, programs in _linked[start:end]:
        if path is None:
            continue
        reading.num_files += 1
        for each in programs:
            apply_checks(each.module, each.blocks, wanted, reading)
        count_source_read(path)
    return reading


def _report_parse_errors(unit: SourceUnit) -> SourceReading:
    """Name the files that Python can't parse."""
    reading = SourceReading(num_files=len(unit.named))
    for path in unit.named:
        for text, _ in _python_programs_of_file(path, reading):
            _parse_or_report(parse_source, text, str(path), reading)
        count_source_read(path)
    return reading


def read_text(text: str, path: str = "<text>", checks: Iterable[SourceCheck] | None = None) -> SourceReading:
    """Read one text with the given checks, or all."""
    return read_texts({path: text}, checks)


def read_texts(texts: Mapping[str, str], checks: Iterable[SourceCheck] | None = None) -> SourceReading:
    """Read several texts, by path, as the files of one project."""
    reading = SourceReading(num_files=len(texts))
    project = SourceProject(SourceTexts(texts))
    files = [_parse_programs([(text, None)], path, project, reading) for path, text in texts.items()]
    project.link()
    wanted = source_checks() if checks is None else list(checks)
    for programs in files:
        for each in programs:
            apply_checks(each.module, each.blocks, wanted, reading)
    reading.findings.sort(key=lambda finding: (finding.place, finding.code))
    return reading


_Blocks = NotebookText | Markdown | None  # the cells or blocks that a program stands in; None for a script


@dataclass
class _ReadProgram:
    """A program of a project that is read: a file, or one of those in a page."""

    module: SourceModule
    project: SourceProject
    blocks: _Blocks = None


def _add_file_to_project(path: Path, project: SourceProject, reading: SourceReading) -> list[_ReadProgram]:
    """Parse a file into the project; what can't be read is named."""
    programs = _parse_programs(_python_programs_of_file(path, reading), str(path), project, reading)
    for each in programs:
        if isinstance(each.blocks, NotebookText):
            _note_cell_results(each.module, each.blocks.starts)
    return programs


def _python_programs_of_file(path: Path, reading: SourceReading) -> list[tuple[str, _Blocks]]:
    """Return the Python of each program of a file, with the cells or blocks it stands in; what is no Python is named."""
    try:
        if path.suffix != ".ipynb" and path.suffix not in markdown.ENDINGS:
            return [(source_file_text(path), None)]
        raw = path.read_bytes().decode("utf-8-sig")
        page = parse_notebook(raw) if path.suffix == ".ipynb" else parse_markdown(raw)
    except (OSError, SyntaxError, ValueError) as error:
        reading.note_unreadable_file(str(path), error)
        return []
    reading.unreadable += [(f"{path}:{number}", reason) for number, reason in page.unreadable]
    programs = page.programs if isinstance(page, MarkdownPage) else [page]
    return [(each.text, each) for each in programs]


def why_nothing_to_find(path: Path) -> str | None:
    """Return why a file can hold no training: no code, or none but Python's own modules to train with; None where it may."""
    trees = []
    for text, _ in _python_programs_of_file(path, SourceReading()):
        try:
            trees.append(ast.parse(text))
        except SyntaxError:
            return None  # which the reading names
    if all(map(_is_plain_words, (each for tree in trees for each in tree.body))):
        return "holds no Python code"
    imported = {name for tree in trees for each in ast.walk(tree) for name in _imported_top_names(each)}
    is_known = imported <= sys.stdlib_module_names - {"importlib", "runpy"}  # by which others come
    return "imports nothing but Python's own modules, and those train nothing" if is_known else None


def _is_plain_words(statement: ast.stmt) -> bool:
    """Whether a statement does nothing: words that stand alone on their lines parse as Python, too."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    return isinstance(statement, ast.Expr) and isinstance(
        statement.value, ast.Constant | ast.Name | ast.Tuple
    )


def _imported_top_names(node: ast.AST) -> list[str]:
    """Return the top names of the modules that a statement imports; those of the user's own folder have "" for theirs."""
    if isinstance(node, ast.Import):
        return [each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["" if node.level else (node.module or "").partition(".")[0]]
    return [""] if isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval") else []


def _note_cell_results(module: SourceModule, starts: Sequence[int]) -> None:
    """Note which expressions are the last of their cells: what they give is shown."""
    last: dict[int, ast.stmt] = {}
    for statement in module.tree.body:
        last[bisect.bisect_right(starts, statement.lineno)] = statement
    module.shown.update(each for each in last.values() if isinstance(each, ast.Expr))


def _parse_programs(
    contents: Sequence[tuple[str, _Blocks]], path: str, project: SourceProject, reading: SourceReading
) -> list[_ReadProgram]:
    """Parse the programs of a file; what is no Python is named."""
    programs = []
    for part, (text, blocks) in enumerate(contents):
        module = _parse_or_report(partial(project.add, part=part), text, path, reading)
        if module is not None:
            programs.append(_ReadProgram(module, project, blocks))
            if blocks is None and (cells := cell_marker_lines(text)):
                _note_cell_results(module, cells)
    return programs


def _parse_or_report(
    parse: Callable[[str, str], Result], text: str, path: str, reading: SourceReading
) -> Result | None:
    try:
        return parse(text, path)
    except (SyntaxError, ValueError) as error:
        reading.note_unreadable_file(path, error)
        return None
