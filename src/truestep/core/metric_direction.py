# SPDX-License-Identifier: Apache-2.0
"""What a metric's name tells: which way is better."""

import re
from typing import Literal

HIGHER = {"accuracy", "acc", "f1", "auc", "precision", "recall", "iou", "dice", "bleu", "rouge", "psnr",
          "ssim", "score", "r2", "map", "top1", "top5", "reward", "return"}  # fmt: skip
LOWER = {"error", "err", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "cer", "fid", "nll", "bpb", "loss"}

# what `Learner` and `Run` log of themselves: nobody chooses a run by it
MEASURED = {"learning_rate", "gradient_norm", "samples_per_second", "memory_bytes", "updates_skipped",
            "save_stall_seconds"}  # fmt: skip

Better = Literal["max", "min"]


def best_mode_of_metric(name: str) -> Better | None:
    """Return whether the max or the min of a metric is its best value; None where its name does not tell."""
    if name.rpartition("/")[2] in MEASURED:
        return None
    words = words_of_metric(name)
    if words & {"neg", "negative", "minus"}:  # as sklearn names them
        return None
    return "min" if words & LOWER else "max" if words & HIGHER else None  # of `dice_loss`, `top5_error`


def words_of_metric(name: str) -> set[str]:
    """Return the words that a metric's name is made of, in lower case."""
    return set(re.split(r"[^a-z0-9]+", name.lower()))


def missing_best_mode_message(called: str, name: str, mode: Better | None) -> str | None:
    """Return what to say where a metric is to be the best one, its name tells of a loss or an error, and no mode was given."""
    if mode is not None or best_mode_of_metric(name) != "min":
        return None
    return (
        f"{called} does not say which way is better, and the highest would be kept: of what is called so the lowest is best as a "
        'rule. Write best_mode="min", or best_mode="max" where the highest is meant.'
    )
