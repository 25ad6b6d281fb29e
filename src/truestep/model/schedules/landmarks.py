# SPDX-License-Identifier: Apache-2.0
"""Where a curve's warm-up ends, its peak is and it stops changing; and whether it fits the training."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from truestep.core.text_formatting import number_text, plural


@dataclass(frozen=True, kw_only=True)
class Landmarks:
    """What one looks for in the curve of a setting; steps count updates from 1."""

    first: float
    warmup_steps: int  # updates until the peak is reached without ever falling, 0 for none
    peak: float
    peak_step: int
    last: float
    constant_from_step: int  # the first update from which on nothing changes


def schedule_landmarks(values: Sequence[float]) -> Landmarks:
    """Return the landmarks of the values of updates 1, 2, ..."""
    peak = max(values)
    at = values.index(peak)
    rises = at > 0 and all(before <= after for before, after in pairwise(values[: at + 1]))
    constant = len(values) - 1
    while constant > 0 and values[constant - 1] == values[-1]:
        constant -= 1
    return Landmarks(
        first=values[0],
        warmup_steps=at + 1 if rises else 0,
        peak=peak,
        peak_step=at + 1,
        last=values[-1],
        constant_from_step=constant + 1,
    )


def landmark_points(marks: Landmarks, num_steps: int) -> dict[int, str]:
    """Return the updates that are worth a mark in a curve of `num_steps` values, with what happens there."""
    end = min(marks.constant_from_step, num_steps)
    points = {end: f"{'constant' if end < num_steps else 'last'}: {number_text(marks.last)}"}
    if marks.warmup_steps and marks.first < marks.peak:
        points[marks.peak_step] = f"warm-up ends: peak {number_text(marks.peak)}"
    elif marks.peak > marks.last:
        points[marks.peak_step] = f"peak {number_text(marks.peak)}"
    return dict(sorted(points.items()))


def schedule_length_mismatch_text(
    marks: Landmarks, num_steps: int, ends_after: int | None, stopped: str | None
) -> str:
    """Return how the length of a schedule and that of the training go together, "" where they do or nothing tells."""
    if stopped is not None:
        return f"The schedule is too short for {plural(num_steps, 'update')}: it raises {stopped}."
    share = f"{marks.last / marks.peak:.0%} of its peak" if marks.peak else "0"
    if ends_after is not None and ends_after < num_steps:
        return (
            f"The schedule ends after {ends_after:,} of {num_steps:,} updates; the last {num_steps - ends_after:,} are made "
            f"with {number_text(marks.last)}, {share}."
        )
    if ends_after is not None and ends_after > num_steps:
        return (
            f"The training ends after {plural(num_steps, 'update')}, the schedule after {ends_after:,}: the last update is "
            f"made with {number_text(marks.last)}, {share}."
        )
    return ""
