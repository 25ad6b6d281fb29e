# SPDX-License-Identifier: Apache-2.0
"""What all that follows the operations of a step in a child has in common."""

from collections.abc import Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

from truestep.doctor.experiments.outcome import ChildOutcome


class StepFollower(TorchFunctionMode):
    """Within it operations are followed; it rests while gradients are computed, and what a backward computes anew is not seen."""

    _rests = False

    def goes_backward(self, roots: Sequence[Any]) -> None:
        """Follow nothing while the gradients of these roots are computed."""
        del roots
        self._rests = True

    def went_backward(self) -> None:
        """Follow operations again."""
        self._rests = False

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of all that was found."""
        raise NotImplementedError
