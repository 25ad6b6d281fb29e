# SPDX-License-Identifier: Apache-2.0
"""Lines at which a graph ends: numbers that can carry a gradient come from numbers that do."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from truestep.core.frames import line_of_user_code
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.runtime.operations import cuts_graph, watched_operation_name, watched_operation_tensors

_READS = frozenset({"item", "tolist", "numpy", "array", "float"})
_MOST_LINES = 3


class GraphCuts(TorchFunctionMode):
    """Keeps the operations that cut a graph, each with the line of the user's code that calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name, given = watched_operation_name(func), watched_operation_tensors(args, kwargs)
        reads = name in _READS and any(each.requires_grad for each in given)
        if reads or (isinstance(result, Tensor) and cuts_graph(result, given)):
            line = line_of_user_code()
            said = f"{name} at {_shown(line)}" if line else name
            if line and said not in self.found and len(self.found) < _MOST_LINES:
                self.found.append(said)
        return result


def cuts_of(trials: Trials) -> str | None:
    """Return where the loss cuts its graph, None where no such operation is seen."""
    found = GraphCuts()
    trials.run(trials.loss, within=found)
    return ", ".join(found.found) or None


def _shown(line: str) -> str:
    path, _, number = line.rpartition(":")
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{number}"
    except ValueError:
        return f"{Path(path).name}:{number}"
