# SPDX-License-Identifier: Apache-2.0
"""Tells of a call whether its result is given a name that no later line reads, and in which statement it is."""

import dis
from collections.abc import Iterator, Sequence
from functools import cache
from types import CodeType

_READS_ALL_NAMES = {"locals", "vars", "globals", "eval", "exec", "dir"}
_GOES_ON_ELSEWHERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_NO_INTERRUPT")
_ENDS = ("RETURN", "RAISE", "RERAISE")
_MODULE = "<module>"


@cache
def name_never_read(code: CodeType, call: int) -> str | None:
    """Return the name that a call's result is given, where no way from there reads it; else None.

    Args:
        code: of the function, or of a script.
        call: where in it the call is, as `f_lasti` of a frame has it.
    """
    steps = list(dis.get_instructions(code))
    following = next((number for number, each in enumerate(steps) if each.offset > call), None)
    if following is None or not _keeps_a_name(code, steps[following]):
        return None
    accesses = list(_accesses(steps[following]))
    name = accesses[0][1]
    if name.startswith("_") or _READS_ALL_NAMES & {*code.co_names} or name in _names_inside(code):
        return None
    return None if _is_read(code, steps, following, name) else name


@cache
def start_of_statement(code: CodeType, call: int) -> int:
    """Return where the statement with a call begins; within one that branches, behind the last branch."""
    ends = ("STORE_", "POP_TOP", "POP_JUMP", "JUMP_", "RESUME", "DELETE_")
    before = (each.offset for each in dis.get_instructions(code) if each.opname.startswith(ends))
    return max((each for each in before if each < call), default=0)


def _keeps_a_name(code: CodeType, step: dis.Instruction) -> bool:
    """Tell whether a step gives a name that nobody but this code can read; a notebook's other cells could."""
    if step.opname.startswith("STORE_FAST"):
        return True
    return step.opname == "STORE_NAME" and code.co_name == _MODULE and code.co_filename.endswith(".py")


def _is_read(code: CodeType, steps: Sequence[dis.Instruction], start: int, name: str) -> bool:
    if any(each == name for _, each in list(_accesses(steps[start]))[1:]):
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
        own = [kind for kind, each in _accesses(step) if each == name]
        if own and own[0] != "STORE":
            return True  # a name that is taken away was meant to be there
        if own or step.opname.startswith(_ENDS):
            continue
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            waiting.append(at[step.argval])
        if not step.opname.startswith(_GOES_ON_ELSEWHERE):
            waiting.append(number + 1)
    return False


def _accesses(step: dis.Instruction) -> Iterator[tuple[str, str]]:
    """Yield LOAD, STORE or DELETE and the name, in order; one step may do two of them."""
    kinds = [part for part in step.opname.split("_") if part in ("LOAD", "STORE", "DELETE")]
    if kinds and ("_FAST" in step.opname or step.opname.endswith(("_NAME", "_GLOBAL"))):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        yield from zip(kinds, names, strict=False)


def _names_inside(code: CodeType) -> set[str]:
    """Return the names that functions written within this code use."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {name for each in inner for name in (*each.co_names, *each.co_freevars, *_names_inside(each))}
