# SPDX-License-Identifier: Apache-2.0
"""Each kind of clipping once, as the page that lists them writes it."""

import re
from pathlib import Path

import truestep as ts

PAGE = Path(__file__).parents[2] / "docs" / "choose-clip.md"
_CALL = re.compile(r"^\| `(ts\.\w+\(.*?\))` \|", re.MULTILINE)


def halve(gradients: dict) -> None:
    """Do what a clip of one's own may do."""
    for each in gradients.values():
        each.mul_(0.5)


WRITTEN = [eval(each, {"ts": ts}) for each in _CALL.findall(PAGE.read_text("utf-8"))]
EXAMPLES = {type(each).__name__: each for each in [*WRITTEN, ts.ClipFunction(halve)]}
