# SPDX-License-Identifier: Apache-2.0
"""A seccomp filter that allows a list of system calls to this process, for good, and refuses all others.

Source: the kernel's `Documentation/userspace-api/seccomp_filter.rst`; a program is a row of `struct sock_filter`.
"""

import ctypes
import errno
import os
import platform
import struct

from truestep.doctor.forks import system_calls as calls

# instructions of the classic packet filter: load a word, jump if equal, jump if any bit is set, return
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # where they stand in `struct seccomp_data`
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2

Instruction = tuple[int, int, int, int]
ALLOW: Instruction = (_RETURN, 0, 0, _ALLOW)
REFUSE: Instruction = (_RETURN, 0, 0, _ERROR | errno.EPERM)
MISSING: Instruction = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)


def filter_system_calls() -> None:
    """Let this process make the listed system calls alone, from now on.

    Raises:
        OSError: the kernel takes no filter here, or no list is known for this processor.
    """
    machine = platform.machine()
    if machine not in calls.ARCHITECTURES:
        raise OSError(f"no list of system calls is known for {machine}")
    program = _filter_instructions(machine, os.getpid())
    code = b"".join(struct.pack("HBBI", *each) for each in program)
    kept = ctypes.create_string_buffer(code, len(code))
    given = _FilterProgram(len(program), ctypes.addressof(kept))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.prctl(
        _SET_SECCOMP, _FILTER, ctypes.byref(given), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _filter_instructions(machine: str, process: int) -> list[Instruction]:
    """Return the whole filter: each call's number is compared in turn, its rule follows."""
    found: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, calls.ARCHITECTURES[machine]),
        REFUSE,  # the calls of another mode of the processor have other numbers
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name, rule in _argument_rules(process).items():
        number = calls.call_number(name, machine)
        found += _rule_for_call(number, rule) if number is not None else []
    for number in calls.missing_call_numbers(machine).values():
        found += _rule_for_call(number, [MISSING])
    for number in calls.allowed_call_numbers(machine).values():
        found += _rule_for_call(number, [ALLOW])
    return [*found, REFUSE]


def _argument_rules(process: int) -> dict[str, list[Instruction]]:
    """Return what is asked of the arguments of a call, by name."""
    return {
        "open": _refuse_if_any_bit(1, calls.WRITES),
        "openat": _refuse_if_any_bit(2, calls.WRITES),
        "clone": _allow_if_bit_set(0, calls.CLONE_THREAD),  # a thread of its own, no process
        "fcntl": _allow_if_one_of(1, calls.DESCRIPTOR_COMMANDS),
        "ioctl": _allow_if_one_of(1, calls.DEVICE_COMMANDS),
        "prctl": _allow_if_one_of(0, calls.PROCESS_COMMANDS),
        "kill": _allow_if_one_of(0, (process,)),
        "tgkill": _allow_if_one_of(0, (process,)),
        "prlimit64": _allow_if_one_of(0, (0, process)),
        "sched_setaffinity": _allow_if_one_of(0, (0, process)),
    }


def _rule_for_call(number: int, rule: list[Instruction]) -> list[Instruction]:
    return [(_EQUAL, 0, len(rule), number), *rule]


def _load_argument(index: int) -> Instruction:
    """Load an argument's low half: numbers of these calls have 32 bits."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _refuse_if_any_bit(index: int, bits: int) -> list[Instruction]:
    return [_load_argument(index), (_ANY_BIT, 0, 1, bits), REFUSE, ALLOW]


def _allow_if_bit_set(index: int, bit: int) -> list[Instruction]:
    return [_load_argument(index), (_ANY_BIT, 0, 1, bit), ALLOW, REFUSE]


def _allow_if_one_of(index: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [part for each in values for part in ((_EQUAL, 0, 1, each), ALLOW)]
    return [_load_argument(index), *tests, REFUSE]
