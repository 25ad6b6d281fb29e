# SPDX-License-Identifier: Apache-2.0
"""What a check sees in a sealed child, brought back to the process that is watched."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from torch import nn

from truestep.doctor.finding import Place, Severity
from truestep.doctor.forks.fork import ForkOutcome, run_in_sealed_child
from truestep.doctor.watcher_base import Observation


def observe_in_child(
    look: Callable[[], Iterable[Observation]], model: nn.Module
) -> tuple[list[Observation], str | None]:
    """Return what `look()` yields in a sealed child, and why it could not look, if so."""
    outcome = run_in_sealed_child(
        lambda: [_observation_document(each) for each in look()], num_bytes=_expected_num_bytes(model)
    )
    return _parse_observations(outcome), outcome.failure


def _expected_num_bytes(model: nn.Module) -> int:
    """Return about how much a child writes that applies or trains a model: what a step of Adam's would."""
    return 4 * sum(each.nbytes for each in (*model.parameters(), *model.buffers()))


def _observation_document(seen: Observation) -> dict[str, Any]:
    return {**asdict(seen), "severity": str(seen.severity)}


def _parse_observations(outcome: ForkOutcome) -> list[Observation]:
    return [
        Observation(Place(**each["place"]), each["message"], Severity(each["severity"]), each["evidence"])
        for each in outcome.value or ()
    ]
