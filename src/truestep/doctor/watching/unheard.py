# SPDX-License-Identifier: Apache-2.0
"""Which checks of a watch could not run, and why."""

from typing import TYPE_CHECKING

from truestep.doctor.watcher import Watcher

if TYPE_CHECKING:
    from truestep.doctor.watch import Watch


def reasons_not_run(watch: "Watch") -> dict[str, str]:
    """Return the checks that could not run, each with its reason."""
    if watch.scene.gave_up is not None:
        return {check.code: watch.scene.gave_up for check in (*watch.watchers, *watch.probes, *watch.tried)}
    found: dict[str, str] = {}
    for watcher in watch.watchers:
        if watcher.cannot_run is not None:
            found[watcher.code] = watcher.cannot_run
        elif watch.scene.compiled and _looks_inside(watcher):
            found[watcher.code] = "the model is compiled: hooks on its modules would change what is compiled"
        elif not watch.scene.num_steps and not watcher.needs_no_step:
            found[watcher.code] = "no optimizer stepped"
    for probe in [*watch.probes, *watch.tried]:
        if probe.cannot_run is not None:
            found[probe.code] = probe.cannot_run
        elif probe in watch.probes:
            found[probe.code] = "no model was applied in training mode before the first step"
    return found


def _looks_inside(watcher: Watcher) -> bool:
    return watcher.looks_inside or type(watcher).on_layer is not Watcher.on_layer
