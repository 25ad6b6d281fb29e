# SPDX-License-Identifier: Apache-2.0
"""Whether this is a notebook or an interactive shell, where leaving means going back to the cell."""

import sys
from typing import Any


def shell() -> Any:
    """Return IPython's shell, None outside of it."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()


def is_interactive() -> bool:
    """Whether an exit would end more than this run."""
    return shell() is not None or hasattr(sys, "ps1")
