# SPDX-License-Identifier: Apache-2.0
"""The names of a run's files, for whoever reads them."""

import os
from pathlib import Path

from truestep.core.errors import OptionError
from truestep.core.text_formatting import a_type

CONFIG = "config.json"
METRICS = "metrics.jsonl"
REPORT = "report.html"
COMPARISON = "comparison.html"


def check_not_a_run(directory: object) -> Path:
    """Return a folder that was given as a path; an OptionError says so where a run itself was given."""
    if not isinstance(directory, str | os.PathLike):
        instead = " Write run.directory." if hasattr(directory, "directory") else ""
        raise OptionError(f"A folder of runs is given by its path, and not as {a_type(directory)}.{instead}")
    return Path(directory)
