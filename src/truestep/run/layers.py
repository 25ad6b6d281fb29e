# SPDX-License-Identifier: Apache-2.0
"""A run's looks at its learners' layers: written to `layers.jsonl`, told to trackers, and what is wrong said once."""

import json
import math
import os
from pathlib import Path
from typing import Any

from truestep.core.atomic_files import open_regular_file, replacing_file
from truestep.engine.parts import LearnerParts
from truestep.model.layers.findings import LayerFinding, Look, layer_numbers_for_json
from truestep.model.layers.interval import SHARE, Every
from truestep.model.layers.measures import SPAN
from truestep.model.layers.watch import ModelLayerLooks
from truestep.report.layers import LAYERS, read_reported_looks
from truestep.run.state import RunState

FULL = 256  # lines after which only every second look is written; again so many, every fourth
SHOWN = 5  # layers that are named, of those that do the same


class RunLayerWatch:
    """Begins and ends looks between updates; off them an update costs a comparison."""

    def __init__(self, run: RunState, every: Every) -> None:
        self._run = run
        self._path = run.directory / LAYERS
        whole_here = run.is_main and not run.context.strategy.divides_weights  # else there is none to look at
        self._every = every if whole_here else 0
        self._looks: dict[str, ModelLayerLooks | None] = {}
        self._num_seen = 0

    def open(self) -> None:
        """The run begins, or goes on: what was written after its step goes."""
        if not self._every or not self._path.exists():
            return
        kept = [line for line in read_reported_looks(self._path) if line["step"] <= self._run.cursor.done]
        self._num_seen = len(kept)
        with replacing_file(self._path) as file:
            file.write(b"".join(_encode_json_line(line) for line in kept))

    def updated(self, learner: LearnerParts) -> None:
        """An update is done: it may have been looked at, and the next one may be."""
        if not self._every:
            return
        if learner.name not in self._looks:
            self._looks[learner.name] = self._make_looks(learner)
        looks = self._looks[learner.name]
        if looks is None:
            return
        following = learner.counters.attempts + 1
        if following % looks.interval.every and not looks.is_looking:
            return
        with looks.interval.clock:
            looks.end(self._run.cursor.step)
            self._report_new_looks(learner.name, looks)  # what is on its way from the device comes next time
            if looks.interval.allows(following, SHARE / len(self._looks)):
                looks.begin(following)

    def _make_looks(self, learner: LearnerParts) -> ModelLayerLooks | None:
        if learner.is_compiled:
            reason = "hooks would have it compiled anew; compile=False watches its layers"
            self._run.context.choose(
                f"layers of {learner.name}", "not watched", f"it is compiled, and {reason}"
            )
            return None
        if learner.needs_closure:  # its forward runs many times an update
            return None
        return ModelLayerLooks(learner.module, self._every, counts_gradients=bool(len(self._run.trackers)))

    def _report_new_looks(self, name: str, looks: ModelLayerLooks, *, wait: bool = False) -> None:
        known = len(looks.findings)
        for look in looks.arrived(wait=wait):
            self._num_seen += 1
            new = looks.findings[known:]
            known = len(looks.findings)
            if new or self._num_seen % (1 << max(0, self._num_seen // FULL).bit_length()) == 0:
                self._append_look_to_file(name, look, new)
            self._send_to_trackers(name, look)
            for fault in dict.fromkeys(finding.fault for finding in new):
                self._run.screen.note(
                    _finding_group_sentence([finding for finding in new if finding.fault == fault])
                )

    def _append_look_to_file(self, name: str, look: Look, findings: list[LayerFinding]) -> None:
        line: dict[str, Any] = {
            "step": look.step,
            "learner": name,
            "layers": {each.name: layer_numbers_for_json(each) for each in look.layers},
            "findings": [vars(finding) for finding in findings],
        }
        try:
            _append_to_file(self._path, _encode_json_line(line))
        except OSError as error:  # a full disk: no reason to stop a training
            self._every = 0
            self._run.screen.say(
                f"the layers are not watched any more: {LAYERS} can't be written ({error.strerror})"
            )

    def _send_to_trackers(self, name: str, look: Look) -> None:
        if not len(self._run.trackers):
            return
        for each in look.layers:
            full = f"{name}/{each.name}"
            self._send_histogram_to_trackers(full, each.counts, each.mean, each.spread, look.step)
            self._send_histogram_to_trackers(
                f"{full}/gradient", each.gradient_counts, 0.0, each.gradient or 0.0, look.step
            )

    def _send_histogram_to_trackers(
        self, name: str, counts: tuple[float, ...], middle: float, spread: float, step: int
    ) -> None:
        width, low = 2 * SPAN * spread / max(1, len(counts)), middle - SPAN * spread
        if counts and math.isfinite(low) and width > 0:
            edges = [low + width * number for number in range(len(counts) + 1)]
            self._run.trackers.counted(name, list(counts), edges, step)

    def end(self) -> None:
        """The run ends: take what is still on its way."""
        for name, looks in self._looks.items():
            if looks is not None:
                looks.end(self._run.cursor.step)
                self._report_new_looks(name, looks, wait=True)


def _encode_json_line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _append_to_file(path: Path, text: bytes) -> None:
    with os.fdopen(open_regular_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
        file.write(text)


def _finding_group_sentence(alike: list[LayerFinding]) -> str:
    """Return what is said of layers that do the same: in a deep model it is a hundred at once, and the report shows each."""
    first, *others = alike
    names = ", ".join(finding.layer for finding in others[:SHOWN])
    more = f" Likewise {len(others)} more: {names}{', ...' if len(others) > SHOWN else ''}." if others else ""
    return f"{first.message}.{more} {first.advice}"
