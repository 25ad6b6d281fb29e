# SPDX-License-Identifier: Apache-2.0
"""An automatic choice with its reason."""

from typing import NamedTuple


class Choice(NamedTuple):
    """Something that was chosen for the user, and why."""

    name: str
    value: str
    reason: str
