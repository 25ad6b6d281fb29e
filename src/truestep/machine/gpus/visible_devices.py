# SPDX-License-Identifier: Apache-2.0
"""Give cards to this process or to a command: through the variables that CUDA reads once."""

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import ClassVar

from truestep.core.environment_variables import set_environment_variables
from truestep.core.errors import GpuError, check_number
from truestep.core.quantities import parse_bytes, parse_seconds
from truestep.machine.gpus.claims import CardClaims
from truestep.machine.gpus.pick import CardWaiter, CardWaitingLimits
from truestep.machine.gpus.select import CardChoice, CardConditions

_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


class _ClaimedCards:
    """The claims of this process, which stay open to its end, and the variables as they were before."""

    descriptors: ClassVar[list[int]] = []
    before: ClassVar[dict[str, str | None]] = {}

    @classmethod
    def undo_earlier_claim(cls) -> None:
        """Undo an earlier call: a notebook's cell that is run again picks again."""
        while cls.descriptors:
            os.close(cls.descriptors.pop())
        set_environment_variables(cls.before)
        cls.before = {}


def use_gpus(
    count: int = 1,
    *,
    free_memory: str | int = 0,
    by: str = "freest",
    wait: str | float = 0,
    max_utilization_percent: float | None = None,
    only: Sequence[str | int] = (),
) -> CardChoice:
    """Pick cards, claim them for the life of this process, and let CUDA see only them.

    Sets CUDA_VISIBLE_DEVICES (to UUIDs) and CUDA_DEVICE_ORDER. CUDA reads them once, so this must come
    before anything asks it, `torch.cuda.is_available()` included; afterwards it raises `GpuError`, as it
    does when the conditions are not met within `wait` ("30m", or seconds). `free_memory` is bytes or
    "20GiB"; `by` is "freest", "coolest", "least-used" or "edge"; `only` names cards by number or UUID.
    A CUDA_VISIBLE_DEVICES that is set already restricts the choice. A second call gives the first one's
    cards back.
    """
    check_number("ts.use_gpus", "count", count, example=1, least=1)
    asked = evidence_cuda_was_initialized()
    if asked:
        raise GpuError(
            f"{asked}, so CUDA_VISIBLE_DEVICES would be ignored and the process would run on other cards "
            "than the picked ones. Call ts.use_gpus() first, before the first use of torch.cuda."
        )
    wanted = CardConditions(
        count=count,
        free_memory_bytes=parse_bytes(free_memory),
        by=by,
        max_utilization_percent=max_utilization_percent,
        only=tuple(map(str, only)),
    )
    patience = CardWaitingLimits(wait_seconds=parse_seconds(wait))
    # Before anything is picked: the cards of the last call may be the ones that are wanted again.
    _ClaimedCards.undo_earlier_claim()
    claims = CardClaims()
    choice = CardWaiter(wanted, claims).pick(
        lambda uuid: _ClaimedCards.descriptors.append(claims.hold(uuid)), patience
    )
    if not choice.met:
        raise GpuError(f"No cards were picked: {choice.explain()}. Ask for less, or wait (wait='30m').")
    _ClaimedCards.before = set_environment_variables(cuda_environment_variables(choice))
    return choice


def cuda_environment_variables(choice: CardChoice) -> dict[str, str]:
    """Return the variables that let CUDA see the chosen cards, in order of preference."""
    return dict(zip(_VARIABLES, (",".join(choice.uuids), "PCI_BUS_ID"), strict=True))


def evidence_cuda_was_initialized() -> str | None:
    """Return what shows that CUDA has read its variables in this process, or None.

    The driver's library answers "not initialized" until something started it, also where torch says that
    it is not initialised yet: `torch.cuda.is_available()` starts the library alone.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "torch has started CUDA already"
    try:
        # RTLD_NOLOAD: only looked up, never loaded, by this question
        driver = ctypes.CDLL("libcuda.so.1", mode=getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_LAZY", 0))
    except OSError:
        return None  # nothing in this process has loaded the driver's library
    if driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == _NOT_INITIALIZED:
        return None
    return "CUDA has been started already (torch.cuda.is_available() or device_count() does so)"
