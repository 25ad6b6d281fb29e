# SPDX-License-Identifier: Apache-2.0
"""Which checks of a watch could not run, and why."""

from collections.abc import Sequence

from truestep.doctor.probe import Probe
from truestep.doctor.runtime.history import WatchHistory
from truestep.doctor.watcher import Watcher


def why_checks_did_not_run(
    history: WatchHistory, watchers: Sequence[Watcher], probes: Sequence[Probe]
) -> dict[str, str]:
    """Return the checks that could not run, each with its reason."""
    if history.gave_up is not None:
        return {check.code: history.gave_up for check in (*watchers, *probes)}
    found: dict[str, str] = {}
    for watcher in watchers:
        if watcher.on_request and not history.thorough:
            continue  # what was not asked for is no news
        if watcher.cannot_run is not None:
            found[watcher.code] = watcher.cannot_run
        elif history.compiled and _looks_inside(watcher):
            found[watcher.code] = "the model is compiled: hooks on its modules would change what is compiled"
        elif not history.num_steps and not watcher.needs_no_step:
            found[watcher.code] = "no optimizer stepped"
    for probe in probes:
        if probe.cannot_run is not None:
            found[probe.code] = probe.cannot_run
        elif not probe.tried:
            found[probe.code] = "no model was applied in training mode before the first step"
    return found


def _looks_inside(watcher: Watcher) -> bool:
    kind = type(watcher)
    follows = kind.on_layer is not Watcher.on_layer or kind.on_operation is not Watcher.on_operation
    return watcher.looks_inside or follows
