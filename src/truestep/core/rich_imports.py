# SPDX-License-Identifier: Apache-2.0
"""The names of rich that draw a screen, imported without a draw from Python's shared random stream.

rich takes the number of its first style from there as it is imported, so that the first result that is shown would change what a
program draws afterwards. Each module takes the names from here, at the moment when something is shown.
"""

import random as _random

_state = _random.getstate()
from rich import box  # noqa: E402
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult  # noqa: E402
from rich.live import Live  # noqa: E402
from rich.padding import Padding  # noqa: E402
from rich.style import Style  # noqa: E402
from rich.table import Table  # noqa: E402
from rich.text import Text  # noqa: E402
from rich.tree import Tree  # noqa: E402

_random.setstate(_state)

__all__ = [
    "Console",
    "ConsoleOptions",
    "Group",
    "Live",
    "Padding",
    "RenderResult",
    "RenderableType",
    "Style",
    "Table",
    "Text",
    "Tree",
    "box",
]
