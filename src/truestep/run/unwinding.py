# SPDX-License-Identifier: Apache-2.0
"""Telling why a generator is being closed: its loop was left on purpose, or an exception is on its way through it.

Python closes a loop's iterator in both cases, and shows the generator nothing but GeneratorExit. What differs is the
instruction at which the loop's own frame stands: `break` and `return` drop the iterator with an instruction of their own,
an exception stands at whatever raised it.
"""

import dis
import sys
from types import FrameType

# Instructions that let go of an iterator on purpose, in CPython 3.11 to 3.14.
_LETTING_GO = frozenset(
    {
        *("POP_TOP", "POP_ITER", "END_FOR", "FOR_ITER", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE"),
        *(
            "RETURN_VALUE",
            "RETURN_CONST",
            "DELETE_FAST",
            "DELETE_NAME",
            "DELETE_GLOBAL",
            "DELETE_SUBSCR",
            "DELETE_ATTR",
        ),
        *("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "JUMP_BACKWARD"),
    }
)
# Where a wrapping generator (tqdm, a helper of the user's) stands while it is closed itself.
_SUSPENDED = frozenset({"YIELD_VALUE", "RESUME", "SEND", "JUMP_BACKWARD_NO_INTERRUPT"})


def exception_on_its_way() -> bool:
    """Whether the loop around the calling generator, which handles GeneratorExit, is being left by an exception."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _instruction(frame) in _SUSPENDED:
        frame = frame.f_back
    return frame is not None and _instruction(frame) not in _LETTING_GO


def _instruction(frame: FrameType) -> str:
    if frame.f_lasti < 0:
        return ""
    opcode = frame.f_code.co_code[frame.f_lasti]
    return dis.opname[opcode]
