# SPDX-License-Identifier: Apache-2.0
"""Runs all checks, goes on after one that ends with an exception, and makes of it a table that can be pasted into an issue."""

import platform
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch

import truestep
from truestep.core.device_specific import (
    current_accelerator_device,
    gpu_name_and_versions,
    require_usable_device,
)
from truestep.core.result_display import RenderableType, Result
from truestep.selfcheck.checks import CHECKS
from truestep.selfcheck.training import CheckedDevice, Outcome, Seen


@dataclass(frozen=True)
class SelfCheckRow:
    """One check, with what it saw; `says` gives the reason where it does not apply."""

    name: str
    outcome: Outcome
    says: str
    seconds: float


@dataclass(frozen=True)
class SelfCheckReport(Result):
    """All checks of a device, in order."""

    device: str
    facts: dict[str, str]
    rows: tuple[SelfCheckRow, ...]

    @property
    def failed(self) -> tuple[SelfCheckRow, ...]:
        """The checks that found something wrong."""
        return tuple(row for row in self.rows if row.outcome == "FAILED")

    def __rich__(self) -> RenderableType:
        """Return a table in Markdown, whose lines are never broken."""
        from truestep.core.rich_imports import Text

        # (a fact is not broken)
        facts = ", ".join(f"{name}\xa0{value}".replace(" ", "\xa0") for name, value in self.facts.items())
        lines = [textwrap.fill(facts, 79, break_on_hyphens=False).replace("\xa0", " "), ""]
        lines += ["| check | outcome | what was seen | seconds |", "|---|---|---|---|"]
        lines += [
            f"| {row.name} | {row.outcome} | {row.says.replace('|', '/')} | {row.seconds:.1f} |"
            for row in self.rows
        ]
        counts = [f"{kind}: {sum(row.outcome == kind for row in self.rows)}" for kind in get_args(Outcome)]
        return Text("\n".join([*lines, "", ", ".join(counts)]), no_wrap=True, overflow="ignore")


def check_device(device: str = "auto", *, told: Callable[[str], object] = str) -> SelfCheckReport:
    """Try each law once on a device, "auto" being the accelerator if there is one; `told` hears the name of each check.

    torch's settings and random streams are used as they are, and not put back: this is for a process of its own.
    """
    here = (
        (current_accelerator_device() or torch.device("cpu"))
        if device == "auto"
        else require_usable_device(device)
    )
    here = torch.empty(0, device=here).device  # with its number
    with tempfile.TemporaryDirectory(prefix="truestep-selfcheck-") as folder:
        rows = tuple(_run_checks(CheckedDevice(here, Path(folder)), told))
    facts = {"truestep": truestep.__version__, "torch": str(torch.__version__), "device": str(here)}
    facts |= {name: str(value) for name, value in gpu_name_and_versions(here).items()}
    return SelfCheckReport(str(here), facts | {"on": platform.platform(terse=True)}, rows)


def _run_checks(place: CheckedDevice, told: Callable[[str], object]) -> Iterator[SelfCheckRow]:
    for name, check in CHECKS.items():
        told(name)
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seen = check(place)
        except Exception as error:  # noqa: BLE001 - it is the result: the other checks are still to be made
            seen = Seen("FAILED", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        yield SelfCheckRow(name, *seen, round(time.perf_counter() - began, 3))
