# SPDX-License-Identifier: Apache-2.0
"""Lines at which a graph ends: numbers that can carry a gradient come from numbers that do."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from truestep.core.user_frames import line_of_user_code
from truestep.doctor.relations.graph import walk_graph_nodes
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.runtime.operations import is_graph_cut, watched_operation_name, watched_operation_tensors

_READS = frozenset({"item", "tolist", "numpy", "array", "float"})
_GRADIENT = getattr(Tensor.grad, "__get__", None)
_MOST_LINES = 3


class GraphCuts(TorchFunctionMode):
    """Keeps the operations that cut a graph, each with the line of the user's code that calls it.

    Attributes:
        found: operations with their lines.
        detached: what `detach` was called on.
        hidden: whether values were read past the graph otherwise, by `.data`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.detached: list[Tensor] = []
        self.is_hidden = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name, given = watched_operation_name(func), watched_operation_tensors(args, kwargs)
        if func == _GRADIENT:  # what is there is asked for, nothing is computed
            return result
        reads = name in _READS and any(each.requires_grad for each in given)
        if reads or (isinstance(result, Tensor) and is_graph_cut(result, given)):
            self._keep_cut(name, given[0])
        return result

    def gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `torch.autograd.grad` such that it tells where it is given no `create_graph`."""

        def grad(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("create_graph") and (line := line_of_user_code()) is not None:
                self._keep_line("grad without create_graph", line)
            return original(*args, **kwargs)

        return grad

    def _keep_line(self, name: str, line: str) -> None:
        if (name, line) not in self.found and len(self.found) < _MOST_LINES:
            self.found.append((name, line))

    def _keep_cut(self, name: str, given: Tensor) -> None:
        line = line_of_user_code()
        if line is None:
            return
        self._keep_line(name, line)
        self.detached += [given] if name == "detach" else []
        self.is_hidden |= name == "data"


@dataclass(frozen=True)
class LossGraphCuts:
    """Where a loss cuts its graph.

    Attributes:
        place: operations with their lines, None where none was seen.
        is_meant: whether all that is detached reaches the loss by another way, with its gradient: a target, a weight, a code.
    """

    place: str | None
    is_meant: bool


def find_graph_cuts(trials: Trials) -> LossGraphCuts:
    """Return where the loss cuts its graph."""
    found = GraphCuts()
    meant: list[bool] = []

    def compute(batch: Any) -> None:
        with found:
            loss = trials.loss(batch)
        own = non_leaf_nodes(
            [part for part in (loss, getattr(loss, "values", None)) if isinstance(part, Tensor)]
        )
        meant.extend(bool(own & non_leaf_nodes([each])) for each in found.detached)

    trials.run(compute)
    told = ", ".join(f"{name} at {_short_place(line)}" for name, line in found.found)
    return LossGraphCuts(told or None, bool(meant) and all(meant) and not found.is_hidden)


def non_leaf_nodes(tensors: list[Tensor]) -> set[Any]:
    """Return the nodes of graphs but for those of the leaves."""
    return {node for node in walk_graph_nodes(tensors) if not hasattr(node, "variable")}


def _short_place(line: str) -> str:
    path, _, number = line.rpartition(":")
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{number}"
    except ValueError:
        return f"{Path(path).name}:{number}"
