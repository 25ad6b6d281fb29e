# SPDX-License-Identifier: Apache-2.0
"""Record the cards over time: one JSON line each reading."""

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from truestep.machine.gpus.nvml import keep_nvml_started
from truestep.machine.gpus.read import GpuReport, read_gpus


def watch_cards(every_seconds: float) -> Iterator[GpuReport]:
    """Yield a reading at once and then one each period; a slow reading delays none of the later ones."""
    start = time.monotonic()
    with keep_nvml_started():
        for number in count(1):
            yield read_gpus()
            late = time.monotonic() - start - number * every_seconds
            if late > every_seconds:  # a machine that slept does not catch up by a burst of readings
                start += late
            time.sleep(max(0.0, start + number * every_seconds - time.monotonic()))


def append_card_reading(report: GpuReport, path: Path) -> None:
    """Append a reading to a JSONL file, as one write, so that several samplers can share the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(report.to_dict(), separators=(",", ":")) + "\n")
