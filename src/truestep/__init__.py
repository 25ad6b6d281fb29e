# SPDX-License-Identifier: Apache-2.0
"""Training for PyTorch in which every step is exact, and a doctor for the code you already have.

Every public name is listed in `_WHERE` and imported when it is first asked for, so that
`import truestep` costs next to nothing and works beside a broken torch, or none.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truestep.errors import TruestepError as TruestepError
    from truestep.inspection.environment import environment as environment
    from truestep.inspection.gpus import gpus as gpus
    from truestep.inspection.gpus.use import use_gpus as use_gpus
    from truestep.inspection.memory import free_memory as free_memory
    from truestep.inspection.memory import leftover_memory as leftover_memory

_WHERE = {
    "TruestepError": "truestep.errors",
    "environment": "truestep.inspection.environment",
    "free_memory": "truestep.inspection.memory",
    "gpus": "truestep.inspection.gpus",
    "leftover_memory": "truestep.inspection.memory",
    "use_gpus": "truestep.inspection.gpus.use",
}

__all__ = ["environment", "free_memory", "gpus", "leftover_memory", "TruestepError", "use_gpus"]  # noqa: RUF022  by letter, not by case


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version("truestep")
    if name not in _WHERE:
        raise AttributeError(f"module 'truestep' has no attribute {name!r}; it has: {', '.join(__all__)}")
    try:
        value = getattr(import_module(_WHERE[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"truestep.{name} needs PyTorch, missing here. Install it with: pip install 'truestep[torch]'",
            name="torch",
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
