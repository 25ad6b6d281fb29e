# SPDX-License-Identifier: Apache-2.0
"""Switches autocast off in a child: half precision hides what a small step changes in a loss."""

from typing import Any

import torch

HALF_PRECISION = 1e-5  # rounding above which numbers are of half precision


def switch_autocast_off() -> None:
    """Have operations compute in the types that they are given, also in contexts that were made before. It is for a child alone."""
    torch.set_autocast_enabled("cpu", False)
    enter: Any = torch.autocast.__enter__

    def __enter__(self: torch.autocast) -> object:  # noqa: N807
        self._enabled = False
        return enter(self)

    torch.autocast.__enter__ = __enter__  # type: ignore[method-assign]
