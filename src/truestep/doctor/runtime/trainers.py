# SPDX-License-Identifier: Apache-2.0
"""Finds the Hugging Face Trainer whose step a call is made in."""

import sys
from types import FrameType


def accumulating_trainer() -> object:
    """Return the Trainer in whose `training_step` this is called, if it accumulates; nothing of its library is imported."""
    if (library := sys.modules.get("transformers.trainer")) is None:
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name == "training_step" else None
        if isinstance(owner, library.Trainer):
            return owner if owner.args.gradient_accumulation_steps > 1 else None
        frame = frame.f_back
    return None
