# SPDX-License-Identifier: Apache-2.0
"""An automatic choice with its reason."""

from typing import NamedTuple


class Choice(NamedTuple):
    """Something that was chosen for the user, and why."""

    name: str
    value: str
    reason: str
    weakens: bool = False
    """Whether a law can't be kept because of it; the run then says so when it starts."""
