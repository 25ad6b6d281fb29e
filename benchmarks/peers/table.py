# SPDX-License-Identifier: Apache-2.0
"""What every comparison here prints: one row a library and case, with what was expected, what was found, and a verdict."""

import datetime as dt
import logging
import os
import platform
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version


@dataclass(frozen=True)
class Row:
    """One library in one case; `right` is whether what was found is what was expected, None where there is nothing to measure."""

    library: str
    case: str
    expected: str
    found: str
    right: bool | None

    def __str__(self) -> str:
        verdict = {True: "as expected", False: "**not as expected**", None: "–"}[self.right]
        return f"| {self.library} | {self.case} | {self.expected} | {self.found} | {verdict} |"


def named(distribution: str, display: str | None = None) -> str:
    """Return a library's name with its release."""
    return f"{display or distribution.capitalize()} {version(distribution)}"


LIGHTNING, ACCELERATE = named("lightning"), named("accelerate")
IGNITE, TORCH = named("pytorch-ignite", "Ignite"), f"torch {version('torch').split('+')[0]}"
TRUESTEP = "Truestep"


def show(claim: str, rows: Iterable[Row]) -> None:
    """Print the rows, each as soon as it is there."""
    where = f"{os.cpu_count()} cores, CPU only, {TORCH}, Python {platform.python_version()}"
    print(f"{claim} ({dt.date.today()}, {where})\n", flush=True)
    print("| library | case | expected | found | verdict |\n|---|---|---|---|---|", flush=True)
    for row in rows:
        print(row, flush=True)


def quiet() -> None:
    """Keep the libraries' messages out of the tables; use one thread."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


LIGHTNING_PLAIN = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
"""Options of a Lightning trainer that shows and keeps nothing."""
