# SPDX-License-Identifier: Apache-2.0
"""Where the values of a failing line come from: their line, in whichever of the user's functions, and their data set."""

import ast
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

from truestep.core.user_frames import is_library_file
from truestep.explainer.crash import Crash, CrashFrame
from truestep.explainer.source import (
    UserSourceLine,
    crashed_file_nodes_of_type,
    crashed_line_without_strings,
    file_name_of_any_system,
    last_assignment_line,
)
from truestep.explainer.values import is_layer_at_crash, static_attribute_lookup


def line_that_created_value(crash: Crash, name: str, value: Any) -> UserSourceLine | None:
    """Return the line that made a value: followed by identity from function to function, through library code too."""
    if not crash.is_live:
        return crash.made(name)
    users = [frame for frame in reversed(crash.frames) if frame.is_users and frame.live is not None]
    found = last_assignment_line(users[0].path, name, users[0].line) if users else None
    if found is not None:
        return return_line_of_called_function(users[0], found, name) or found
    # `self.x` is another object's in another function, so only plain names are followed outwards.
    for frame in users[1:] if "." not in name else ():
        for known, each in frame.locals().items():
            line = last_assignment_line(frame.path, known, frame.line) if each is value else None
            if line is not None and not known.startswith("__"):
                found = return_line_of_called_function(frame, line, known) or line
    return found


def dataset_of_loop_at_line(crash: Crash, line: UserSourceLine | None) -> str:
    """Return " (from CLASS.__getitem__, FILE:LINE)" where a line loops over a loader."""
    frames = (each for each in crash.frames if line is not None and each.path == line.path and each.live)
    frame = next(frames, None)
    values = _loop_iterables_at_line(frame, line) if frame is not None and line is not None else ()
    return next((f" (from {shown})" for value in values if (shown := _user_getitem_behind_loader(value))), "")


def dataset_being_read(crash: Crash) -> str:
    """Return " of CLASS.__getitem__, FILE:LINE" for the data set that is being read."""
    readers = (frame.locals().get("self") for frame in crash.frames)
    return next((f" ({shown})" for reader in readers if (shown := _user_getitem_behind_loader(reader))), "")


def _user_getitem_behind_loader(loader: Any) -> str:
    """Name the user's __getitem__ behind a loader, a data set, or the class of one."""
    found, data_set = static_attribute_lookup(loader, "dataset")
    kind = type(data_set) if found else loader if isinstance(loader, type) else type(loader)
    code = getattr(getattr(kind, "__getitem__", None), "__code__", None)
    if code is None or is_library_file(code.co_filename):
        return ""
    file = file_name_of_any_system(code.co_filename)
    return f"{kind.__name__}.__getitem__, {file}:{code.co_firstlineno}"


def _loop_iterables_at_line(frame: CrashFrame, line: UserSourceLine) -> Iterator[Any]:
    """Yield the values that the `for` at a line names after `in`."""
    loops = [(node, node.iter) for node in crashed_file_nodes_of_type(line.path, ast.For)]
    givings = [(node, node.value) for node in crashed_file_nodes_of_type(line.path, ast.Assign)]
    for node, looped in (*loops, *givings):
        for name in ast.walk(looped) if node.lineno == line.number else ():
            if isinstance(name, ast.Name) and (value := frame.lookup(name.id)) is not None:
                yield value


def files_defining_user_models(crash: Crash) -> list[str]:
    """Return the files that hold the user's own classes of the models on the stack."""
    found: dict[str, None] = {}
    for _, _, value in crash.users_locals():
        if is_layer_at_crash(value):
            for each in value.modules():
                module = sys.modules.get(type(each).__module__)
                path = getattr(module, "__file__", None)
                if path and not type(each).__module__.startswith(("torch.", "torchvision.")):
                    found[path] = None
    running = {frame.path for frame in crash.frames if frame.is_users}
    return [path for path in found if CrashFrame(path, 0, "").is_users or path in running]


def format_line_location(path: str, number: int) -> str:
    """Return FILE:LINE (TEXT)."""
    name = file_name_of_any_system(path)
    return f"{name}:{number} ({crashed_line_without_strings(path, number)})"


def defined_at_phrase(function: Any) -> str:
    """Return ", defined at FILE:LINE" for a function or class of the user's own."""
    try:
        path, number = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return ""
    if not path or not CrashFrame(path, 0, "").is_users:
        return ""
    return f", defined at {file_name_of_any_system(path)}:{number}"


_OFF = ("no_grad", "inference_mode")


def return_line_of_called_function(
    frame: CrashFrame, line: UserSourceLine, name: str
) -> UserSourceLine | None:
    """Return the line of a user's function that made what `name = function(...)` gave; None where that is not the form."""
    assignment = _assignment_at_line(line)
    if assignment is None or not isinstance(assignment.value, ast.Call):
        return None
    function = _function_by_plain_name(frame, assignment.value.func)
    code = getattr(function, "__code__", None)
    if code is None or not CrashFrame(code.co_filename, 0, "").is_users:
        return None
    returned = _last_return_statement(code)
    if returned is None:
        return None
    value = _returned_part_for_name(assignment.targets[0], returned.value, name)
    if isinstance(value, ast.Name | ast.Attribute):
        return last_assignment_line(code.co_filename, ast.unparse(value), returned.lineno)
    return UserSourceLine(
        code.co_filename, returned.lineno, crashed_line_without_strings(code.co_filename, returned.lineno)
    )


def no_grad_function_of_value(crash: Crash, name: str) -> str | None:
    """Return which user's function made a value under no_grad or inference_mode, by its decorator."""
    line, frame = crash.made(name), crash.user
    assignment = _assignment_at_line(line) if line is not None else None
    for call in ast.walk(assignment.value) if assignment is not None and frame is not None else ():
        function = (
            _function_by_plain_name(frame, call.func)
            if isinstance(call, ast.Call) and frame is not None
            else None
        )
        kind, inner = (
            _grad_mode_decorator_name(function),
            inspect.unwrap(function) if callable(function) else None,
        )
        code = getattr(inner, "__code__", None)
        if kind and code is not None:
            return f"{code.co_name} ({file_name_of_any_system(code.co_filename)}:{code.co_firstlineno}) runs under @torch.{kind}()"
    return None


def _assignment_at_line(line: UserSourceLine) -> ast.Assign | None:
    found = crashed_file_nodes_of_type(line.path, ast.Assign)
    return next((node for node in found if node.lineno == line.number), None)


def _function_by_plain_name(frame: CrashFrame, node: ast.AST) -> Any:
    """Return the function that a plain name stands for."""
    found = frame.lookup(node.id) if isinstance(node, ast.Name) else None
    return found if isinstance(found, types.FunctionType) else None


def _last_return_statement(code: types.CodeType) -> ast.Return | None:
    """Return the last `return` with a value of a function."""
    named = [
        node
        for node in crashed_file_nodes_of_type(code.co_filename, ast.FunctionDef)
        if node.name == code.co_name
    ]
    # By its first line: a file may define several functions of one name, methods above all.
    function = next(
        (node for node in named if _first_line_with_decorators(node) == code.co_firstlineno), None
    )
    returns = [
        node
        for node in _nodes_outside_inner_functions(function)
        if isinstance(node, ast.Return) and node.value is not None
    ]
    return max(returns, key=lambda node: node.lineno, default=None)


def _first_line_with_decorators(function: ast.FunctionDef) -> int:
    """Return the line that Python takes for a function's first: that of its first decorator."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _nodes_outside_inner_functions(function: ast.FunctionDef | None) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but for those of the functions inside it."""
    waiting: list[ast.AST] = list(function.body) if function is not None else []
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            waiting += ast.iter_child_nodes(node)


def _returned_part_for_name(target: ast.AST, value: ast.AST | None, name: str) -> ast.AST | None:
    """Return the part of what is returned that a name is given."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return next((part for each, part in pairs if ast.unparse(each) == name), None)
    return value


def _grad_mode_decorator_name(function: Any) -> str:
    """Return the name of the switch that torch's decorator put around a function."""
    if not hasattr(function, "__wrapped__") or not function.__code__.co_filename.endswith("_contextlib.py"):
        return ""
    # torch's decorator keeps the switch as the owner of a bound method, `ctx_factory = switch.clone` (torch 2.13).
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    owner = getattr(getattr(cells.get("ctx_factory"), "cell_contents", None), "__self__", None)
    return type(owner).__name__ if type(owner).__name__ in _OFF else ""
