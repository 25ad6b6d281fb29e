# SPDX-License-Identifier: Apache-2.0
"""Training for PyTorch in which every step is exact, and a doctor for the code you already have.

Every public name is listed in `_WHERE` and imported when it is first asked for, so that
`import truestep` costs next to nothing and works beside a broken torch, or none.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truestep.engine.checkpoints.apply import apply_state as apply_state
    from truestep.engine.checkpoints.retention import Retention as Retention
    from truestep.engine.checkpoints.sources import read_checkpoint as read_checkpoint
    from truestep.engine.checkpoints.store import CheckpointStore as CheckpointStore
    from truestep.engine.checkpoints.weights import export_weights as export_weights
    from truestep.engine.checkpoints.weights import load_weights as load_weights
    from truestep.errors import TruestepError as TruestepError

_WHERE = {
    "apply_state": "truestep.engine.checkpoints.apply",
    "CheckpointStore": "truestep.engine.checkpoints.store",
    "export_weights": "truestep.engine.checkpoints.weights",
    "load_weights": "truestep.engine.checkpoints.weights",
    "read_checkpoint": "truestep.engine.checkpoints.sources",
    "Retention": "truestep.engine.checkpoints.retention",
    "TruestepError": "truestep.errors",
}

__all__ = [  # noqa: RUF022  (alphabetical, whatever the case)
    "apply_state",
    "CheckpointStore",
    "export_weights",
    "load_weights",
    "read_checkpoint",
    "Retention",
    "TruestepError",
]


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
