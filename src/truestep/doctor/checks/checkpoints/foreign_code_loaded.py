# SPDX-License-Identifier: Apache-2.0
"""torch.load that runs what the file says."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import argument, literal, parts_given

_FETCHES = re.compile(r"(^|_)(download|fetch|urlretrieve|urlopen)(_|$)")


class ForeignCodeLoaded(SourceCheck):
    """torch.load is called with weights_only=False.

    Why: unpickling runs whatever code the file names.

    Bad:
        state = torch.load("w.pt", map_location="cpu", weights_only=False)  # here

    Good:
        state = torch.load("w.pt", map_location="cpu", weights_only=True)

    Fix: weights_only=True (the default); save plain tensors, numbers and dicts.

    Evidence: JaidedAI/EasyOCR c4f3cd72 easyocr/detection.py:78; 186 repositories: said 48 times, not judged;
    corpus, bed K: 1 true, 8 debatable, 0 false.
    """

    code = "SAVE004"
    words = ("weights_only",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the literal False."""
        for call in module.calls("torch.load"):
            if literal(module, argument(call, None, "weights_only")) is False:
                severity = RISK if _is_downloaded(module, call) else ADVICE
                yield At(call, "weights_only=False runs whatever code the file names.", severity)


def _is_downloaded(module: SourceModule, call: ast.Call) -> bool:
    """Tell a file that the program fetches: its own checkpoints are as safe as its code."""
    made = [
        each for part in parts_given(module, call) if isinstance(part, ast.Call) for each in walk(part.func)
    ]
    return any(_FETCHES.search(getattr(each, "attr", getattr(each, "id", ""))) for each in made)
