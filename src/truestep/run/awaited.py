# SPDX-License-Identifier: Apache-2.0
"""Data that a run was saved with and that its code makes later than the run begins: between two loops over epochs, say."""

from collections.abc import Iterator
from typing import Any

from truestep.engine.data import BatchSource


class SourceAwaitedByRun(BatchSource):
    """Stands for data until `run.data` makes it, and keeps its state for the checkpoints that are saved meanwhile."""

    num_batches, num_samples = None, None

    def __init__(self, saved: dict[str, Any]) -> None:
        self.choices = []
        self._saved = saved

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Nobody holds it, so nobody can read it."""
        raise AssertionError("data that is not made yet was read")

    def fingerprint(self) -> dict[str, Any]:
        """Return what the run was saved with."""
        fingerprint: dict[str, Any] = self._saved["fingerprint"]
        return fingerprint

    @property
    def is_per_rank(self) -> bool:
        """Whether each of several ranks keeps a state of its own."""
        ranks: int = self.fingerprint().get("ranks", 1)
        return ranks > 1

    def state_dict(self) -> dict[str, Any]:
        """Return what the run was saved with."""
        state: dict[str, Any] = self._saved["source"]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """It is there already."""
