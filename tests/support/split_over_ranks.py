# SPDX-License-Identifier: Apache-2.0
"""Trainings on several real processes, compared with those of one."""

import importlib.util
from pathlib import Path

import torch

from .ranks import on_ranks

PROGRAM = Path(__file__).parents[1] / "engine" / "strategies" / "over_ranks.py"
DIVIDED = [
    "blocks",
    "adversaries",
    "unequal_parts",
    "left_out",
    "gone_back",
    "few_examples",
    "experts",
    "detached",
    "mixed",
    "mixed_fp16",
    "measured_unasked",
]
MORE_DIVIDED = ["token_weights", "statistics", "values_per_token", "together", "contrast"]

NOT_ON_CARDS = [
    "gone_back"
]  # what is not finite is told one update late there, so that other batches are left out


def program():
    spec = importlib.util.spec_from_file_location("over_ranks", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def differences(alone, together):
    """Return the largest difference of each kind of tensor, relative to the largest number in it."""
    return {
        kind: max(
            float((one.double() - other.double()).abs().max() / one.double().abs().max().clamp(min=1e-300))
            for one, other in zip(alone[kind], together[kind], strict=True)
        )
        for kind in alone
    }


def check(tmp_path, size, strategy="auto", names=(), *, on=""):
    """Train on so many processes and on one; they are `on` a stand-in of "card"s, or run "ahead" of the host as a card does."""
    finished = on_ranks(PROGRAM, tmp_path, strategy, *([on] if on else []), *names, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error[-3000:]
    module = program()
    (tmp_path / "alone").mkdir()
    for name in names or module.CASES:
        if name == "unequal_parts" and size != 2:
            continue
        together = torch.load(tmp_path / f"{name}.pt")
        found = differences(module.trained(name, tmp_path / "alone"), together)
        bound = 0.02 if name.startswith("mixed") else 1e-11
        assert all(difference < bound for difference in found.values()), (name, found)
