# SPDX-License-Identifier: Apache-2.0
"""Plain: the engine, unsplit, ends with the bits of the loop by hand, on the same batches and random streams."""

from pathlib import Path

import torch
from programs.compose import Program
from programs.laws.comparing import differing, far
from programs.laws.running import ViolationError, ran, refusal, written


def plain_is_exact(program: Program, folder: Path) -> str:
    """Hold the engine, unsplit, against the loop by hand on the same batches and random streams: the same bits."""
    engine = program.files(
        {"loss entry": "same_stream(batch)", "epoch noted": "epoch_begins()", "loss noted": "note_loss(loss)"}
    )
    by_hand = program.with_framework("plain").files(
        {"loss entry": "same_stream()", "loader": "replayed_batches()", "loss noted": "note_loss(loss)"}
    )
    sides = {"truestep": (engine, "record"), "plain": (by_hand, "replay")}
    texts = {f"{side} {name}": text for side, (files, _) in sides.items() for name, text in files.items()}
    for side, (files, driver) in sides.items():
        ended = ran(
            written(folder / side, files), "-c", f"from programs import recording; recording.{driver}()"
        )
        if ended.returncode and side == "truestep" and refusal(program, "plain", ended.stderr):
            return "refused"
        if ended.returncode:
            raise ViolationError(program, texts, f"{side} failed:\n{ended.stdout}{ended.stderr}")
    ends, losses = (
        [torch.load(folder / side / f"{name}.pt") for side in sides] for name in ("end", "losses")
    )
    rounds = any("plain rounds" in habit.words for habit in program.habits)
    precision = program.habit("precision").words
    within = float(precision["plain within"] if rounds else precision.get("losses within", "1e-6"))
    for end in ends:
        end["optimizer"] = end["optimizer"]["state"]  # its options name how it is computed, fused or not
    seen = far(*losses, within) + ([] if rounds else differing(*ends))
    if seen:
        raise ViolationError(program, texts, "\n".join(seen))
    return "run"
