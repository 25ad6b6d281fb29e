# SPDX-License-Identifier: Apache-2.0
"""The options of a command line: which of them the program reads, where all that reads them is in sight."""

import ast

from truestep.doctor.source.arguments import parameters_given
from truestep.doctor.source.memoized_walk import answered_once, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, last_part
from truestep.doctor.source.value_origins import argument, constant

_PARSES = ("parse_args", "parse_known_args")
_SHOWS = ("print", "pprint", "str", "repr", "info", "debug", "warning", "log")
_MOST_STEPS = 40  # names, functions and objects that the options are handed through
_WHOLE = ("__dict__", "_get_kwargs", "__iter__")  # what gives all options at once


def is_unread_option(module: SourceModule, option: ast.Call) -> bool:
    """Tell an option, by its `add_argument`, that no part of the program reads."""
    name, read = option_destination(option), module.program.answer(_option_names_read)
    return name is not None and read is not None and name not in read


def option_destination(option: ast.Call) -> str | None:
    """Return the name under which an option is read: `use_amp` for `--use-amp`."""
    if (given := argument(option, None, "dest")) is not None:
        name = constant(given)
        return name if isinstance(name, str) else None
    flags = [each for each in map(constant, option.args) if isinstance(each, str)]
    first = next((each for each in flags if each.startswith("--")), flags[0] if flags else None)
    return first.lstrip("-").replace("-", "_") if first else None


def option_defaults(files: list[SourceModule]) -> dict[str, object]:
    """Return the defaults of `parser.add_argument("--num-workers", default=4)` by the attribute they become."""
    found: dict[str, object] = {}
    for module in files:
        for call in module.method_calls("add_argument"):
            name, default = option_destination(call), constant(argument(call, None, "default"))
            if name is not None and default is not None:
                found[name] = default
    return found


def _option_names_read(files: list[SourceModule]) -> frozenset[str] | None:
    """Return the options that are read, from where they are parsed on; None where it can't be told who reads them."""
    parsed: list[ast.expr] = [call for file in files for call in file.method_calls(*_PARSES)]
    left = not parsed
    names: set[str] = set()

    def uses_of_options(node: ast.expr) -> list[ast.expr]:
        nonlocal left
        above = files[0].home(node).parents[node]
        if isinstance(above, ast.Attribute) and above.attr not in _WHOLE:
            names.add(above.attr)
            return []
        uses = _option_uses(files[0], node)
        left = left or uses is None
        return uses or []

    for _ in walk_each_once(parsed, uses_of_options, _MOST_STEPS):
        if left:
            break
    return None if left else frozenset(names)


def _option_uses(module: SourceModule, node: ast.expr) -> list[ast.expr] | None:
    """Return where the options are, one step on; None where it can't be told who reads them."""
    home = module.home(node)
    match home.parents[node]:
        case ast.Assign(targets=[target]):
            return _reads_of_target(home, target)
        case ast.Return():
            scope = home.scope(node)
            calls = module.functions.callers(scope) if isinstance(scope, Function) else []
            return [*calls] or None
        case ast.Subscript(value=value) as part if value is node:
            return [part] if constant(part.slice) == 0 else None
        case ast.Call() as call:
            return _reads_of_given_parameter(home, call, node)
        case ast.keyword(arg=str()) as word:
            above = home.parents[word]
            return _reads_of_given_parameter(home, above, node) if isinstance(above, ast.Call) else None
        case ast.Expr() | ast.FormattedValue() | ast.Compare():
            return []
    return None


def _reads_of_target(home: SourceModule, target: ast.expr) -> list[ast.expr] | None:
    if isinstance(target, ast.Tuple) and target.elts:
        target = target.elts[0]
    if isinstance(target, ast.Attribute):
        return [*home.program.attributes_read.get(target.attr, ())]
    if not isinstance(target, ast.Name):
        return None
    if isinstance(home.scope(target), ast.Module):
        return _reads_of_file(home.program.linked[0], target.id)
    scope = home.scope(target)
    return [each for each in home.reads(target.id) if scope in (home.scope(each), *home.ancestors(each))]


@answered_once
def _reads_of_file(home: SourceModule, name: str) -> list[ast.expr]:
    """Return where the files of a program read a name of a file, or an attribute of that name."""
    reads = [each for file in home.program.linked for each in file.read_under(name)]
    return [each for each in reads if isinstance(each, ast.Attribute) or _is_of_file(home, each)]


def _is_of_file(home: SourceModule, name: ast.Name) -> bool:
    """Tell a name that no function has for itself."""
    bound = home.resolver.names.bindings(name)
    return isinstance(name.ctx, ast.Load) and not any(each.how == "parameter" for each in bound)


def _reads_of_given_parameter(home: SourceModule, call: ast.Call, node: ast.expr) -> list[ast.expr] | None:
    """Return where the function that a call runs reads the parameter that it is given for."""
    if call.func is node:
        return None
    function = home.functions.called(call)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [] if function is None and last_part(call.func) in _SHOWS else None
    named = parameters_given(function, call, node)
    inner = home.home(function)
    reads = [each for name in named for each in inner.reads(name)]
    own = [each for each in reads if function in (inner.scope(each), *inner.ancestors(each))]
    return own if named else None
