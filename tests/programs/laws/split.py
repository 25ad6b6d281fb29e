# SPDX-License-Identifier: Apache-2.0
"""Split: the gradient of the first update, in parts of a drawn size, lies within the law's bound of the unsplit one."""

import math
from pathlib import Path

import torch
from programs.compose import Program
from programs.laws.running import UNWATCHED, Trial, chance

UNIT = 2.0**-53
WITHIN_A_ROW = 4  # of the largest gradient: torch's kernels round what cancels within a row, as before a norm (docs/laws/split.md)


def split_is_bounded(program: Program, folder: Path) -> str:
    """Hold the update in parts, in float64, against the update in one."""
    size = chance(program, "split").choice((2, 3, 4, 5))
    noted = UNWATCHED | {"batch noted": "", "workers": "", "loss noted": "note_gradients(run, model, loss)"}
    given = noted | {"split": ", micro_batch=PARTS", "law watches": "watch_parts(model)"}
    trial = Trial(program, folder, "split", given)
    whole, parts, single = (
        torch.load(trial.end(str(part), PARTS=part) / "gradients.pt") for part in ("None", size, 1)
    )
    seen = []
    largest = max(float(each.norm()) for each in single["shares"].values())
    for name, expected in whole["gradients"].items():
        shares = single["shares"][name]
        for which, found, count in (("parts", parts, whole["rows"]), ("single rows", single, whole["rows"])):
            bound = UNIT * (16 * math.sqrt(count) * float(shares.norm()) + WITHIN_A_ROW * largest)
            lies = float((found["gradients"][name] - expected).norm())
            if not lies <= bound:
                seen.append(
                    f"{name}, in {which}: {lies:.2e} from the unsplit gradient; the bound is {bound:.2e}"
                )
    return trial.same(seen)
