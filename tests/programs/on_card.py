# SPDX-License-Identifier: Apache-2.0
"""What the law Card needs inside of a program: the stand-in of two cards, and which functions of ours made the host wait.

`python -c "from programs import on_card; on_card.start()"` runs the program of its folder as `inside.start()` does. With
FAILS in the environment memory runs out at this allocation.
"""

import atexit
import json
import os
import sys
from collections import Counter
from pathlib import Path

from programs import inside
from support.card import Card

import truestep

SOURCE = str(Path(truestep.__file__).parent)
WRAPPERS = (f"{SOURCE}/doctor/runtime", f"{SOURCE}/instrument", str(Path(__file__).parents[1] / "support"))
UPDATE = f"{SOURCE}/engine/update.py"


class ReadCard(Card):
    """Keeps the functions of ours that made the host wait within an update; the program's own may."""

    def __init__(self, **options):
        super().__init__(**options)
        self.own = Counter()

    def read(self, what):
        if self.is_quiet:
            return
        frames, frame = [], sys._getframe(1)
        while frame:
            frames.append((frame.f_code.co_filename, frame.f_code.co_name))
            frame = frame.f_back
        folder = str(Path.cwd())
        near = [each for each in frames if not each[0].startswith(WRAPPERS)]
        file, function = next(
            each for each in near if each[0].startswith((SOURCE, folder)) or each[0] == "main.py"
        )
        if file.startswith(SOURCE) and any(each[0] == UPDATE for each in frames):
            self.own[f"{what} at {file.removeprefix(SOURCE)}:{function}"] += 1


def start() -> None:
    """Run the program of this folder on the second of two cards, to the end of the process, and write down what was seen."""
    card = ReadCard(count=2)
    card.fails_at = int(os.environ.get("FAILS", "0"))
    seen = lambda: json.dumps({"reads": card.own, "allocations": card.allocations})
    atexit.register(lambda: Path("card.json").write_text(seen(), "utf-8"))  # behind the run's own
    card.__enter__()
    inside.start()
