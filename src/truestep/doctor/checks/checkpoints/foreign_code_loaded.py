# SPDX-License-Identifier: Apache-2.0
"""torch.load that runs what the file says."""

from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, literal


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
                yield At(call, "weights_only=False runs whatever code the file names.", ADVICE)
