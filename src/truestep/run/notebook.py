# SPDX-License-Identifier: Apache-2.0
"""Whether this is a notebook or an interactive shell, where leaving means going back to the cell."""

import sys
from typing import Any, NoReturn


def notebook_shell() -> Any:
    """Return IPython's shell, None outside of it."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()


def is_interactive_session() -> bool:
    """Whether an exit would end more than this run."""
    return notebook_shell() is not None or hasattr(sys, "ps1")


def end_process_or_cell(status: int) -> NoReturn:
    """Leave the process, or the notebook's cell."""
    if is_interactive_session():
        raise KeyboardInterrupt
    raise SystemExit(status)
