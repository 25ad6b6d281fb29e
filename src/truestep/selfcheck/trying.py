# SPDX-License-Identifier: Apache-2.0
"""Runs all checks, and goes on after one that ends with an exception."""

import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import truestep
from truestep.core.accelerator import accelerator_here, card_facts
from truestep.core.devices import usable_device
from truestep.selfcheck import laws, machine
from truestep.selfcheck.report import Seen, SelfCheckReport, SelfCheckRow
from truestep.selfcheck.training import CheckedDevice

Check = Callable[[CheckedDevice], Seen]
CHECKS: dict[str, Check] = {
    "Split": laws.split,
    "Plain": laws.plain,
    "Resume": laws.resume,
    "Never empty": laws.never_empty,
    "Order": laws.order,
    "Ownership": laws.ownership,
    "Truthful metrics": laws.truthful_metrics,
    "Watched is plain": laws.watched_is_plain,
    "No hidden sync": laws.no_hidden_sync,
    "overflow of float16": laws.overflow,
    "beside the CPU": laws.beside_the_cpu,
    "all cards": machine.all_cards,
    "several processes": machine.several_ranks,
    "speed": machine.speed,
    "memory": machine.memory,
}


def check_device(device: str = "auto", *, told: Callable[[str], object] = str) -> SelfCheckReport:
    """Try each law once on a device, "auto" being the accelerator if there is one; `told` hears the name of each check.

    torch's settings and random streams are used as they are, and not put back: this is for a process of its own.
    """
    here = (accelerator_here() or torch.device("cpu")) if device == "auto" else usable_device(device)
    here = torch.empty(0, device=here).device  # with its number
    with tempfile.TemporaryDirectory(prefix="truestep-selfcheck-") as folder:
        rows = tuple(_rows(CheckedDevice(here, Path(folder)), told))
    return SelfCheckReport(str(here), _facts(here), rows)


def _rows(place: CheckedDevice, told: Callable[[str], object]) -> Iterator[SelfCheckRow]:
    for name, check in CHECKS.items():
        told(name)
        began = time.perf_counter()
        seen = _tried(check, place)
        yield SelfCheckRow(name, seen.outcome, seen.says, round(time.perf_counter() - began, 3))


def _tried(check: Check, place: CheckedDevice) -> Seen:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check(place)
    except Exception as error:  # noqa: BLE001 - it is the result: the other checks are still to be made
        text = (str(error).splitlines() or [""])[0]
        return Seen("FAILED", f"{type(error).__name__}: {text}")


def _facts(device: torch.device) -> dict[str, str]:
    card = {name: str(value) for name, value in card_facts(device).items()}
    return {
        "truestep": truestep.__version__,
        "torch": str(torch.__version__),
        "device": str(device),
        **card,
        "on": platform.platform(terse=True),
    }
