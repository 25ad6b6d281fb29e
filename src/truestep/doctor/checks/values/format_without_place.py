# SPDX-License-Identifier: Apache-2.0
"""`".jpg".format(name)`."""

import ast
import builtins
import re
import string
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.source.cached_questions import mentions_torch
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.value_origins import literal

_SHOWS = ("print", "log", "info", "debug", "warn", "warning", "error", "write", "set_description", "title")
_ONE_FILE = re.compile(
    r"(^|[^a-zA-Z])(best|last|latest|newest|final|current)([^a-zA-Z]|$)|最好|最佳|最优|最新|最后",
    re.IGNORECASE,
)

_PATH = re.compile(
    r"^\S*([A-Za-z_.~]/|/[A-Za-z_]|(^|[\w}])\.[A-Za-z]\w{0,5}$)\S*$"
)  # `runs/epoch`, `weights.pt`

MAX_NAMES = 3  # from a path back to what names its folder


class FormatWithoutPlace(SourceCheck):
    """A text is given values by format() and has no place for one of them.

    Why: the value is dropped and Python does not complain: what is named or said with it is the same each time.

    Bad:
        for epoch in range(2):
            torch.save(net.state_dict(), "weights.pt".format(epoch))  # here

    Good:
        for epoch in range(2):
            torch.save(net.state_dict(), "weights_{}.pt".format(epoch))

    Fix: write {} where the value belongs.

    Evidence: 186 repositories, beds E, F, H, K, L, M, N, O, R, U, W, Y: 20 true, 15 debatable, 3 false.
    """

    code = "VALUE030"
    words = (".format",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a text that is written here, and a value given to it that it never shows."""
        if not module.program.answer(mentions_torch):
            return
        for call in module.method_calls("format"):
            text = call.func.value.value if _is_method_of_literal(call) else None  # type: ignore[attr-defined]
            fields = _format_field_names(text) if isinstance(text, str) else None
            if not isinstance(text, str) or fields is None or _is_only_displayed(module, call):
                continue
            dropped = _first_unused_value(call, fields)
            if dropped is not None:
                told = isinstance(dropped, ast.Constant)  # the same at each call: no names were to differ
                told = (
                    told
                    or _is_unused_value_harmless(module, text, dropped)
                    or _is_folder_named_by_value(module, call, dropped)
                )
                told = (
                    told
                    or _is_single_file_function(module, call)
                    or _is_program_name_of_process(module, call)
                )
                severity = ADVICE if told else BUG
                lost = "it is dropped"
                if severity is BUG and _PATH.search(text):
                    lost += ", and files whose names are to differ overwrite one another"
                yield At(call, f"{text!r} has no place for {ast.unparse(dropped)}: {lost}.", severity)


def _is_method_of_literal(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Constant)


def _format_field_names(text: str) -> list[str] | None:
    """Return the first parts of the names of a text's places; None where it is no format."""
    try:
        parts = list(string.Formatter().parse(text))
        inner = [each for _, _, spec, _ in parts if spec for each in string.Formatter().parse(spec)]
    except ValueError:
        return None
    return [name.split(".")[0].split("[")[0] for _, name, _, _ in [*parts, *inner] if name is not None]


def _first_unused_value(call: ast.Call, fields: list[str]) -> ast.expr | None:
    """Return the first value that no place shows."""
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    numbers = {int(each) for each in fields if each.isdigit()}
    shown = numbers or set(range(fields.count("")))
    for index, each in enumerate(call.args):
        if index not in shown:
            return each
    named: list[Any] = [each for each in call.keywords if each.arg is not None and each.arg not in fields]
    return named[0].value if named and not fields else None


def _is_unused_value_harmless(module: SourceModule, text: str, dropped: ast.expr) -> bool:
    """Tell a text that names one file on purpose, or a dropped value that tells nothing further: what is left over does no harm.

    It stands in the text already, or is a function or module, which is the same in every run.
    """
    value = literal(module, dropped)
    is_function = isinstance(dropped, (ast.Name, ast.Attribute)) and (
        module.functions.named(dropped) is not None
        or module.qualify(dropped) is not None
        or getattr(dropped, "id", "") in dir(builtins)
    )
    return bool(_ONE_FILE.search(text)) or is_function or (value is not None and str(value) in text)


def _is_single_file_function(module: SourceModule, call: ast.Call) -> bool:
    """Tell a function that is there to keep one file, by its name or by what it says of itself."""
    function = module.enclosing(call, ast.FunctionDef)
    said = (
        [function.name.replace("_", " "), ast.get_docstring(function) or ""] if function is not None else []
    )
    return any(_ONE_FILE.search(each) for each in said)


def _is_program_name_of_process(module: SourceModule, call: ast.Call) -> bool:
    """Tell what a process is made of, the first of its words: it names a program and no file that is written."""
    words = module.parents[call]
    command = module.parents[words] if isinstance(words, (ast.List, ast.Tuple)) else words
    is_first = not isinstance(words, (ast.List, ast.Tuple)) or words.elts[0] is call
    name = (module.qualify(command.func) or "") if isinstance(command, ast.Call) else ""
    return is_first and name.startswith(("subprocess.", "shutil.which", "os.exec"))


def _is_folder_named_by_value(module: SourceModule, call: ast.Call, dropped: ast.expr) -> bool:
    """Tell a file whose folder is named with the dropped value: `join(f"runs/{epoch}", "net.pt".format(epoch))`."""
    path: ast.AST = call
    above = module.parents[path]
    while isinstance(above, (ast.BinOp, ast.JoinedStr)) or _is_path_join(module, above):
        path, above = above, module.parents[above]

    def sources(each: ast.expr) -> list[ast.expr]:
        return [value for value in module.definitions(each) if value is not None]

    apart = {*walk(call), *module.ancestors(call)}
    places = [each for each in walk(path) if isinstance(each, ast.expr) and each not in apart]
    asked = ast.dump(dropped)
    reached = walk_each_once(places, sources, MAX_NAMES)
    return any(ast.dump(part) == asked for each in reached for part in walk(each))


def _is_path_join(module: SourceModule, node: ast.AST) -> bool:
    names = ("os.path.join", "pathlib.Path")
    return isinstance(node, ast.Call) and module.qualify(node.func) in names


def _is_only_displayed(module: SourceModule, call: ast.Call) -> bool:
    """Tell a text that is only shown to somebody, at once or by its name."""
    line = module.statement(call)
    target = line.target if isinstance(line, ast.AugAssign) else getattr(line, "targets", [None])[0]
    if not isinstance(target, ast.Name) or line.value is not call:  # type: ignore[attr-defined]
        return _is_displayed(module, call)
    reads = [each for each in module.reads(target.id) if module.scope(each) is module.scope(call)]
    return bool(reads) and all(_is_displayed(module, each) for each in reads)


def _is_displayed(module: SourceModule, text: ast.expr) -> bool:
    outer = module.parents[text]
    shown = getattr(outer.func, "attr", getattr(outer.func, "id", "")) if isinstance(outer, ast.Call) else ""
    return shown in _SHOWS or isinstance(module.statement(text), (ast.Raise, ast.Assert))
