# SPDX-License-Identifier: Apache-2.0
"""Variables of the environment that are set for a while."""

import os
from collections.abc import Mapping


def set_environment_variables(wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set variables, and take away those whose value is None; return what they were, which sets them back."""
    before = {name: os.environ.get(name) for name in wanted}
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before
