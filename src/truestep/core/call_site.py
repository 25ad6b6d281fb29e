# SPDX-License-Identifier: Apache-2.0
"""What the bytecode of a user's code does at a call: where it is, which variable takes the result, which loop goes through it.

And which variables a function reads, from a call on too, and whether a loop is left by `break`.
"""

import dis
import inspect
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import NamedTuple

from truestep.core.user_frames import is_library_file


class UserCallSite(NamedTuple):
    """A line of the user's own code, and the variable that takes what is called there; None where none does."""

    place: str
    variable: str | None


def user_call_site() -> UserCallSite | None:
    """Return where the innermost running line of the user's own code calls; None where there is none."""
    frame = _user_frame()
    if frame is None:
        return None
    return UserCallSite(
        f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}",
        _assigned_variable(frame.f_code, frame.f_lasti),
    )


def loop_target_pair() -> tuple[str, str] | None:
    """Return the two names that a `for` of the user's takes each item of the running call apart into; None elsewhere."""
    frame = _user_frame()
    return None if frame is None else _loop_target_pair_at(frame.f_code, frame.f_lasti)


def is_call_result_discarded(*rooms: str) -> bool:
    """Whether who called these rooms does nothing with what the call gives, be it a user's code or that of a library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(rooms):
        frame = frame.f_back
    following = _instructions_after(frame.f_code, frame.f_lasti) if frame is not None else iter(())
    first = next(following, None)
    return first is not None and first.opname == "POP_TOP"


def indices_read_at_call(value: object) -> dict[str, frozenset[int]]:
    """Return the variables of the innermost running code of the user's that hold `value` and are read as `name[0]` alone."""
    frame = _user_frame()
    if frame is None:
        return {}
    held = [name for name, each in (frame.f_globals | frame.f_locals).items() if each is value]
    return {name: numbers for name in held if (numbers := constant_indices_read(frame.f_code, name))}


def constant_indices_read(code: CodeType, name: str) -> frozenset[int]:
    """Return the numbers of a variable's parts that a code reads, as `name[0]`; none where it reads it in any other way.

    What tells of its form (`name.shape`, `len(name)`) is no reading.
    """
    found: set[int] = set()
    steps = [each for each in dis.get_instructions(code) if each.opname != "NOP"]
    for before, step, following, last in zip([None, *steps], steps, steps[1:], steps[2:], strict=False):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)  # from Python 3.13 on two
        is_read = "LOAD" in step.opname and name in (names[1:] if step.opname.startswith("STORE_") else names)
        if not is_read:
            continue
        number = _constant_index(following, last)
        if number is not None and names[-1] == name:
            found.add(number)
        elif not (_reads_shape_attribute(following) or (before is not None and before.argval == "len")):
            return frozenset()
    return frozenset() if name in code.co_cellvars else frozenset(found)


def unread_unpacked_indices(code: CodeType, name: str) -> frozenset[int] | None:
    """Return the numbers of a variable's parts that a code takes out of it and reads nowhere; None where it reads nothing of it.

    Parts are those of `x, y = name`; a variable that is read in any other way has none left.
    """
    if name in code.co_cellvars:
        return frozenset()
    parts: list[str] = []
    steps = [each for each in dis.get_instructions(code) if each.opname not in ("NOP", "RESUME", "CACHE")]
    for at, step in enumerate(steps):
        if name not in _names_loaded(step):
            continue
        if parts or step.opname not in _LOADS or steps[at + 1].opname != "UNPACK_SEQUENCE":
            return frozenset()
        parts = list(_names_stored(steps[at + 2 :], steps[at + 1].arg or 0))
    read = {each for step in steps for each in _names_loaded(step)} | {*code.co_cellvars}
    left = frozenset(number for number, part in enumerate(parts) if part not in read)
    return None if len(left) == len(parts) else left


_LOADS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")


def _names_loaded(step: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction reads; from Python 3.13 on one may read two, or write one and read one."""
    if "LOAD_FAST" not in step.opname and "LOAD_DEREF" not in step.opname:
        return ()
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return names[1:] if step.opname.startswith("STORE_") else names


def _names_stored(steps: list[dis.Instruction], num: int) -> Iterator[str]:
    """Yield the variables that so many values are put into, in order; none where they go anywhere else."""
    found: list[str] = []
    for step in steps:
        if len(found) >= num or not step.opname.startswith(("STORE_FAST", "STORE_DEREF")):
            break
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        found += names[:1] if "LOAD" in step.opname else names
    return iter(found if len(found) == num else ())


def attributes_read(code: CodeType) -> Iterator[tuple[str, int]]:
    """Yield the attributes and methods that a code asks for, each with its line."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            line = step.positions.lineno if step.positions else None
            yield step.argval, line or code.co_firstlineno


def closure_variables(function: FunctionType) -> inspect.ClosureVars:
    """Return the variables outside of a function that it reads; none where one of them has no value yet."""
    try:
        return inspect.getclosurevars(function)
    except ValueError:
        return inspect.ClosureVars({}, {}, {}, set())


def is_from_import_running(package: str) -> bool:
    """Whether the innermost running line outside of a package is `from ... import name`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    return _opcode_name_at(frame.f_code, frame.f_lasti) == "IMPORT_FROM"


def is_read_attribute_called(frame: FrameType) -> bool:
    """Whether the attribute that a frame reads at this moment is called as a method is, `name.attribute(...)`.

    Python has an instruction for that; before a call with `*arguments` it reads as anywhere else.
    """
    code, place = frame.f_code.co_code, frame.f_lasti
    name = dis.opname[code[place]] if place >= 0 else ""
    # from Python 3.12 on it is the lowest bit of the instruction's number
    return name == "LOAD_METHOD" or (
        name == "LOAD_ATTR" and sys.version_info >= (3, 12) and code[place + 1] % 2 == 1
    )


def ends_in_raise(error: BaseException) -> bool:
    """Whether the innermost line of an exception's traceback is a `raise`."""
    trail: TracebackType | None = error.__traceback__
    while trail is not None and trail.tb_next is not None:
        trail = trail.tb_next
    return trail is not None and _opcode_name_at(trail.tb_frame.f_code, trail.tb_lasti) == "RAISE_VARARGS"


def is_raised_in_library(error: BaseException) -> bool:
    """Whether an error was raised in Python's or a package's own code, and not by a line of the user's."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return is_library_file(frames[-1].f_code.co_filename)


def _user_frame() -> FrameType | None:
    frames = (frame for frame, _ in walk_stack(sys._getframe(2)))
    return next((each for each in frames if not is_library_file(each.f_code.co_filename)), None)


_FORMS = ("shape", "size", "device", "dtype", "ndim", "dim", "is_cuda")


def _constant_index(step: dis.Instruction, following: dis.Instruction) -> int | None:
    """Return the number of `[0]`, where these two instructions are that."""
    is_constant = step.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(step.argval) is int
    is_subscript = following.opname == "BINARY_SUBSCR" or following.argrepr == "[]"
    return step.argval if is_constant and is_subscript else None


def _reads_shape_attribute(step: dis.Instruction) -> bool:
    return step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _FORMS


def _opcode_name_at(code: CodeType, place: int) -> str:
    return dis.opname[code.co_code[place]] if place >= 0 else ""


def _instructions_after(code: CodeType, place: int) -> Iterator[dis.Instruction]:
    return (each for each in dis.get_instructions(code) if each.offset > place and each.opname != "NOP")


def _assigned_variable(code: CodeType, place: int) -> str | None:
    """Return what the instruction behind a call stores into; the name alone of an attribute."""
    following = _instructions_after(code, place)
    first, second = next(following, None), next(following, None)
    if first and second and first.opname.startswith("LOAD_") and second.opname == "STORE_ATTR":
        first = second
    if first is None or not first.opname.startswith("STORE_") or first.opname == "STORE_SUBSCR":
        return None
    # two in one, from Python 3.13 on
    name = first.argval[0] if isinstance(first.argval, tuple) else first.argval
    return name if isinstance(name, str) else None


@cache
def _loop_target_pair_at(code: CodeType, place: int) -> tuple[str, str] | None:
    found = [each for each, _ in zip(_instructions_after(code, place), range(5), strict=False)]
    if [each.opname for each in found[:3]] != ["GET_ITER", "FOR_ITER", "UNPACK_SEQUENCE"] or found[
        2
    ].argval != 2:
        return None
    first, second = found[3:5]
    if isinstance(first.argval, tuple):  # two in one, from Python 3.13 on
        return first.argval
    if not first.opname.startswith("STORE_"):
        return None
    return str(first.argval), str(second.argval) if second.opname.startswith("STORE_") else "batch"


def is_at_loop_head(frame: FrameType) -> bool:
    """Whether a frame's running line is the head of a loop that asks for its next item, and no call in a body."""
    return _opcode_name_at(frame.f_code, frame.f_lasti) == "FOR_ITER"


def unpacks_call_result(frame: FrameType) -> bool:
    """Whether a frame's running line takes what a call returned apart into several names, `a, b = make()`."""
    steps = [each for each in dis.get_instructions(frame.f_code) if each.offset <= frame.f_lasti]
    return steps[-1].opname.startswith("UNPACK_") and len(steps) > 1 and steps[-2].opname.startswith("CALL")


def leaves_loop_by_statement(frame: FrameType | None) -> bool:
    """Whether code drops the iterator of its loop by `break` or `return`, and not by an exception on its way.

    To a generator that is closed all of these look alike; only `break` and `return` do it by an instruction of their own.
    """
    while frame is not None:
        code, at = frame.f_code, frame.f_lasti
        if _opcode_name_at(code, at) in ("POP_TOP", "POP_ITER"):  # the latter from Python 3.14 on
            return True
        # a generator around the loop's own, a progress bar's say, is closed with it
        frame = frame.f_back if code.co_flags & inspect.CO_GENERATOR else None
    return False


_READS_ALL_NAMES = {"locals", "vars", "globals", "eval", "exec", "dir"}
_GOES_ON_ELSEWHERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_NO_INTERRUPT")
_ENDS = ("RETURN", "RAISE", "RERAISE")
_MODULE = "<module>"


@cache
def unread_result_name(code: CodeType, call: int) -> str | None:
    """Return the name that a call's result is given, where no way from there reads it; else None.

    Args:
        code: of the function, or of a script.
        call: where in it the call is, as `f_lasti` of a frame has it.
    """
    steps, following = _code_instructions(code), _instruction_using_result(code, call)
    if following is None or not _stores_private_name(code, steps[following]):
        return None
    accesses = list(_name_accesses(steps[following]))
    name = accesses[0][1]
    if name.startswith("_") or _READS_ALL_NAMES & {*code.co_names} or name in _names_in_nested_code(code):
        return None
    return None if _is_name_read(code, steps, following, name) else name


def is_in_tuple_assignment(code: CodeType, call: int) -> bool:
    """Tell whether the statement that names a call's result gives another value a name as well: `x, y = first(), second()`."""
    steps, following = _code_instructions(code), _instruction_using_result(code, call)
    if following is None or not _stores_private_name(code, steps[following]):
        return False
    stores = [kind for step in steps[following : following + 2] for kind, _ in _name_accesses(step)]
    return stores[:2] == ["STORE", "STORE"]


def _instruction_using_result(code: CodeType, call: int) -> int | None:
    """Return the step that takes a call's result."""
    steps = _code_instructions(code)
    begin = bisect_right(steps, call, key=_instruction_offset)
    rest = (at for at in range(begin, len(steps)) if steps[at].opname not in ("NOP", "PRECALL"))
    following = next(rest, None)
    if following is not None and steps[following].opname == "CALL" and _is_wrapped_in_variable(code, call):
        following = next(rest, None)
    return following


def _is_wrapped_in_variable(code: CodeType, call: int) -> bool:
    """Whether a statement with a call is `Variable(...)` as a whole, which returns what it is given."""
    begin = start_of_statement(code, call)
    loaded = [
        step.argval
        for step in _code_instructions(code)
        if begin < step.offset < call and "LOAD" in step.opname
    ]
    return next((each for each in loaded if each not in ("torch", "autograd")), None) == "Variable"


def start_of_statement(code: CodeType, call: int) -> int:
    """Return where the statement with a call begins; within one that branches, behind the last branch."""
    ends = _statement_end_offsets(code)
    return ends[at - 1] if (at := bisect_left(ends, call)) else 0


@cache
def _statement_end_offsets(code: CodeType) -> Sequence[int]:
    ends = ("STORE_", "POP_TOP", "POP_JUMP", "JUMP_", "RESUME", "DELETE_")
    return [each.offset for each in _code_instructions(code) if each.opname.startswith(ends)]


@cache
def _code_instructions(code: CodeType) -> Sequence[dis.Instruction]:
    """Return what a code does, also what does nothing: jumps lead to it."""
    return list(dis.get_instructions(code))


def _instruction_offset(step: dis.Instruction) -> int:
    return step.offset


def _stores_private_name(code: CodeType, step: dis.Instruction) -> bool:
    """Tell whether a step gives a name that nobody but this code can read; a notebook's other cells could."""
    if step.opname.startswith("STORE_FAST"):
        return True
    return step.opname == "STORE_NAME" and code.co_name == _MODULE and code.co_filename.endswith(".py")


def _is_name_read(code: CodeType, steps: Sequence[dis.Instruction], start: int, name: str) -> bool:
    if any(each == name for _, each in list(_name_accesses(steps[start]))[1:]):
        return True  # a step that stores one name and reads another, or the same
    at = {each.offset: number for number, each in enumerate(steps)}
    handlers = [at[each.target] for each in dis.Bytecode(code).exception_entries if each.target in at]  # type: ignore[attr-defined]
    waiting, seen = [start + 1, *handlers], set[int]()
    while waiting:
        number = waiting.pop()
        if number >= len(steps) or number in seen:
            continue
        seen.add(number)
        step = steps[number]
        own = [kind for kind, each in _name_accesses(step) if each == name]
        if own and own[0] != "STORE":
            return True  # a name that is taken away was meant to be there
        if own or step.opname.startswith(_ENDS):
            continue
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            waiting.append(at[step.argval])
        if not step.opname.startswith(_GOES_ON_ELSEWHERE):
            waiting.append(number + 1)
    return False


def _name_accesses(step: dis.Instruction) -> Iterator[tuple[str, str]]:
    """Yield LOAD, STORE or DELETE and the name, in order; one step may do two of them."""
    kinds = [part for part in step.opname.split("_") if part in ("LOAD", "STORE", "DELETE")]
    if kinds and ("_FAST" in step.opname or step.opname.endswith(("_NAME", "_GLOBAL"))):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        yield from zip(kinds, names, strict=False)


def _names_in_nested_code(code: CodeType) -> set[str]:
    """Return the names that functions written within this code use."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {
        name for each in inner for name in (*each.co_names, *each.co_freevars, *_names_in_nested_code(each))
    }
