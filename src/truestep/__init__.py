# SPDX-License-Identifier: Apache-2.0
"""Training for PyTorch in which every step is exact, and a doctor for the code you already have.

Every public name is listed in `_WHERE` and imported when it is first asked for, so that
`import truestep` costs next to nothing and works beside a broken torch, or none.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truestep.doctor.watch import watch as watch
    from truestep.errors import TruestepError as TruestepError

_WHERE = {
    "TruestepError": "truestep.errors",
    "watch": "truestep.doctor.watch",
}

__all__ = ["TruestepError", "watch"]


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
