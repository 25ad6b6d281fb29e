# SPDX-License-Identifier: Apache-2.0
"""What is counted of a learner's updates."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from truestep.core.errors import CheckpointError


@dataclass(slots=True)
class UpdateCounters:
    """How many updates were tried, applied and skipped; `micro_batch_in_use` is the size that "auto" arrived at."""

    attempts: int = 0
    updates: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    overflows_in_a_row: int = 0
    micro_batch_in_use: int | None = None

    def count_applied(self) -> None:
        """Count an update that was applied."""
        self.updates += 1
        # most updates follow an applied one: nothing to write
        if self.skipped_in_a_row:
            self.skipped_in_a_row = self.overflows_in_a_row = 0

    def count_skipped(self, *, overflow: bool = False) -> None:
        """Count an update that was skipped."""
        self.skipped += 1
        self.skipped_in_a_row += 1
        self.overflows_in_a_row = self.overflows_in_a_row + 1 if overflow else 0

    def state_dict(self) -> dict[str, int | None]:
        """Return all counts by name."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over all counts; a CheckpointError if they are not those that `state_dict` returns."""
        if problems := self.differences(state):
            raise CheckpointError("The counters of a learner can't be taken over: " + "; ".join(problems))
        for name, value in state.items():
            setattr(self, name, value)

    @staticmethod
    def differences(state: Any) -> list[str]:
        """Return why `state` is none of a learner's counters."""
        if not isinstance(state, dict):
            return [f"counters of type {type(state).__name__}"]
        names = [each.name for each in fields(UpdateCounters)]
        problems = [f"no counter {name}" for name in names if name not in state]
        problems += [f"an unexpected counter {name}" for name in state if name not in names]
        return problems + [
            f"the counter {name}={state[name]!r}, expected a whole number from 0"
            for name in names
            if name in state and not _is_count(state[name], may_lack=name == "micro_batch_in_use")
        ]


def _is_count(value: Any, *, may_lack: bool) -> bool:
    if value is None:
        return may_lack
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
