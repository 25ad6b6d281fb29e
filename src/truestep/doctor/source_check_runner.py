# SPDX-License-Identifier: Apache-2.0
"""Applies source checks to a file, and turns what they give into findings with their changes."""

import ast
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from truestep.doctor.catalogue import check_topic
from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Abstention, CheckFailure, Place, Severity
from truestep.doctor.markdown import Markdown
from truestep.doctor.notebook import NotebookText
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.replacement import Replacement, apply_source_edits, parse_source, replacement
from truestep.doctor.selection import ignore_comments_in
from truestep.doctor.source.closed_world import ClosedWorld
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import SourceRewriteError
from truestep.doctor.source.unreached_code import is_apart_from_trainings, is_never_run, unnamed_definition
from truestep.doctor.source.untaken_branches import is_never_taken

_NESTING = 12_000
_OF_PAGES = {"module": "net", "ddp": "net", "optimizer": "opt", "scheduler": "sched"}  # by the kind

_EXPECTS = re.compile(r"^(assertRaises|assertWarns|raises$|warns$|deprecated_call$)")
_ASKS_VERSION = re.compile(
    r"version|greater|_gt_|_ge_|_lt_|_le_|hasattr\(torch|getattr\(torch", re.IGNORECASE
)
_MISSING = ("ImportError", "ModuleNotFoundError", "AttributeError")


def apply_checks(
    module: SourceModule,
    blocks: NotebookText | Markdown | None,
    checks: Iterable[SourceCheck],
    reading: SourceReading,
) -> None:
    """Apply the checks to one file; a finding in a notebook or a page has its place there."""
    found, wanted = SourceReading(), tuple(checks)
    present = module.program.words(_words_of_checks(wanted))
    with _raised_recursion_limit():
        for check in wanted:
            if not check.words or not present.isdisjoint(check.words):
                _apply_check(check, module, found)
    found.retired |= ignore_comments_in(module.text).retired() if "truestep:" in module.text else set()
    if blocks is not None:
        _map_places_to_blocks(found, module.path, blocks)
    reading.add(found)


@lru_cache(4)
def _words_of_checks(checks: tuple[SourceCheck, ...]) -> frozenset[str]:
    return frozenset(word for check in checks for word in check.words)


def _map_places_to_blocks(found: SourceReading, path: str, blocks: NotebookText | Markdown) -> None:
    def place_in_block(place: Place) -> Place:
        return blocks.place(place) if place.path == path else place

    placed = (blocks.finding(each) if each.place.path == path else each for each in found.findings)
    found.findings = [each for each in placed if each is not None]
    moved = ((place, place_in_block(place), line) for place, line in found.lines.items())
    found.lines = {after: " " * (after.column - before.column) + line for before, after, line in moved}
    found.abstentions = [replace(each, place=place_in_block(each.place)) for each in found.abstentions]


@contextlib.contextmanager
def _raised_recursion_limit() -> Iterator[None]:
    """Let code that Python can still compile, with thousands of elifs say, be walked by recursion."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _NESTING))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _truncation_abstentions(check: SourceCheck, module: SourceModule) -> Iterator[Abstention]:
    """Say so where a check that goes by the order of calls was not shown all of it."""
    for trace in module.program.followed if module.was_followed else ():
        if not trace.complete:
            reason = (
                "functions that call one another, or loops in loops, go too far to be followed to the end"
            )
            yield Abstention(check.code, _place_of_node(module, trace.root), reason)


def _apply_check(check: SourceCheck, module: SourceModule, reading: SourceReading) -> None:
    seen: set[tuple[str, int]] = set()
    module.was_followed = False
    try:
        for found in check.read(module):
            home = module.home(found.node)
            place = _place_of_node(home, found.node)
            if not isinstance(found, At):
                reading.abstentions.append(Abstention(check.code, place, found.reason))
            elif (place.path, place.line) in seen:
                continue
            elif (opening := _unfollowed_call_reason(check, home, found.node)) is not None:
                seen.add((place.path, place.line))
                reading.abstentions.append(Abstention(check.code, place, opening))
            elif not _is_excused(check, home, found.node):
                seen.add((place.path, place.line))
                _add_finding(check, home, found, reading)
        reading.abstentions += _truncation_abstentions(check, module)
    except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others find
        reading.failures.append(CheckFailure(check.code, module.path, f"{type(error).__name__}: {error}"))


def _unfollowed_call_reason(check: SourceCheck, module: SourceModule, node: ast.AST) -> str | None:
    """Return why a check that says "never" can't say so here: a call that could do it, and that nobody followed."""
    world = module.program.answer(ClosedWorld) if check.never else None
    for action in check.never if world is not None else ():
        if world is not None and (place := world.opening(action, node)) is not None:
            home = module.home(place)
            line = getattr(place, "lineno", 1)
            if isinstance(place, ast.Expr):
                return f"{home.path}:{line} stands for lines that are left out, which may {action.words}"
            return f"{home.path}:{line} may {action.words}, and what calls it, and when, can't be followed"
    return None


def _add_finding(check: SourceCheck, module: SourceModule, found: At, reading: SourceReading) -> None:
    """Add a finding, unless a comment hides it."""
    place = _place_of_node(module, found.node)
    severity, why = found.severity, ""
    if severity is Severity.BUG and (lowered := _why_told_as_risk(check, module, found.node)) is not None:
        severity, why = Severity.RISK, lowered
    finding = check.finding(
        place,
        found.message + why,
        severity,
        _user_names_for_page_names(module, found.node),
        evidence=found.evidence,
        replacement=_replacement_for_finding(check, module, found.node, reading),
    )
    if ignore_comments_in(module.text).hide(finding):
        reading.num_hidden += 1
        return
    reading.findings.append(finding)
    reading.lines[place] = module.lines[place.line - 1] if place.line <= len(module.lines) else ""


def _why_told_as_risk(check: SourceCheck, module: SourceModule, node: ast.AST) -> str | None:
    """Return what is said of a bug that is told as a risk, be it nothing; None of one that stays a bug."""
    if _is_uncertain(module, node):
        return ""
    if (unnamed := unnamed_definition(module, node)) is not None:
        return f" It is a risk only, since nothing that was read and that runs names '{unnamed}'."
    # what Python or torch refuses is refused wherever it runs
    holds_anywhere = check.holds_anywhere or check_topic(type(check)) == "deprecated"
    if not holds_anywhere and is_apart_from_trainings(module, node):
        return " It is a risk only, since no training of this repository is seen to come by."
    return None


def _is_uncertain(module: SourceModule, node: ast.AST) -> bool:
    """Tell what only a name says, and what no run in sight comes by."""
    return _is_guessed_from_name(module, node) or is_never_taken(module, node) or is_never_run(module, node)


def _user_names_for_page_names(module: SourceModule, node: ast.AST) -> dict[str, str]:
    """Return what the user calls the things that a page calls net, opt and sched, of those a finding is about."""
    found: dict[str, str] = {}
    for each in _finding_subjects(node):
        if (of_page := _OF_PAGES.get(module.kind(each) or "")) is not None:
            found.setdefault(of_page, ast.unparse(each))
    return found


def _is_guessed_from_name(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether only a name says that this is an optimizer, a model or a loader: then it is no certain mistake."""
    kinds = ("optimizer", "scheduler", "scaler", "module", "ddp", "loader", "loss")
    subjects = [
        each for each in _finding_subjects(node) if module.qualify(each) != "torch.optim"
    ]  # the package
    return any(module.kind(each) in kinds and module.kinds.is_guess(each) for each in subjects)


def _finding_subjects(node: ast.AST) -> list[ast.expr]:
    """Return what a finding is about: the object of a method, its first argument, what an attribute is set on."""
    match node:
        case ast.Call(func=ast.Attribute(value=receiver)):
            found = [receiver, *node.args[:1]]
        case ast.Call():
            found = node.args[:1]
        case ast.Attribute() | ast.Subscript():
            found = [node.value, *_finding_subjects(node.value)]
        case ast.Assign():
            found = [inner for each in node.targets for inner in _finding_subjects(each)]
        case ast.AugAssign() | ast.AnnAssign():
            found = _finding_subjects(node.target)
        case _:
            found = []
    return [each for each in found if isinstance(each, (ast.Name, ast.Attribute))]


def _is_excused(check: SourceCheck, module: SourceModule, node: ast.AST) -> bool:
    """Tests of errors are to have them, and code for old versions is to be old."""
    dated = check_topic(type(check)) == "deprecated"
    return is_meant_to_fail(module, node) or (dated and is_for_other_versions(module, node))


def _replacement_for_finding(
    check: SourceCheck, module: SourceModule, node: ast.AST, reading: SourceReading
) -> Replacement | None:
    """Return the change that mends a finding, if what it leaves is Python; one that fails loses the change only."""
    try:
        change = replacement(module.text, check.rewrite(module, node))
        if change is not None:
            parse_source(apply_source_edits(module.text, change.edits))
    except (SourceRewriteError, SyntaxError):
        return None
    except Exception as error:  # noqa: BLE001 - the finding is true whether or not it can be mended here
        reading.failures.append(CheckFailure(check.code, module.path, f"{type(error).__name__}: {error}"))
        return None
    return change


def _place_of_node(module: SourceModule, node: ast.AST) -> Place:
    """Return where a node begins and how far it goes on its first line; the tree counts bytes, a place characters."""
    first = getattr(node, "lineno", 1)
    raw = module.lines[first - 1].encode() if first <= len(module.lines) else b""
    start = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", 0) == first else len(raw)
    before, here = (len(part.decode("utf-8", "ignore")) for part in (raw[:start], raw[start:end].rstrip()))
    return Place(module.path, first, before + 1, width=here if hasattr(node, "lineno") else 0)


def is_meant_to_fail(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a test expects this to raise or warn: `with pytest.raises(...)`."""
    blocks = [each for each in module.ancestors(node) if isinstance(each, (ast.With, ast.AsyncWith))]
    calls = [item.context_expr for block in blocks for item in block.items]
    names = [ast.unparse(each.func).rsplit(".", 1)[-1] for each in calls if isinstance(each, ast.Call)]
    return any(_EXPECTS.search(name) for name in names)


def is_for_other_versions(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a test of the version stands around, or a handler for what is not there."""
    for each in module.ancestors(node):
        if isinstance(each, (ast.If, ast.IfExp)) and _is_version_test(module, each.test):
            return True
        caught = ast.unparse(each.type) if isinstance(each, ast.ExceptHandler) and each.type else ""
        if any(name in caught for name in _MISSING):
            return True
    return False


def _is_version_test(module: SourceModule, test: ast.expr) -> bool:
    """Tell whether a test asks for a version, be it under a name: `if is_new:`."""
    names = [node for node in walk(test) if isinstance(node, (ast.Name, ast.Attribute))]
    behind = [value for node in names for value in module.definitions(node) if value is not None]
    return any(_ASKS_VERSION.search(ast.unparse(each)) for each in [test, *behind])
