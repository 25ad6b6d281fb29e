# SPDX-License-Identifier: Apache-2.0
"""The autograd graph that a forward leaves, each step of it in the module that made it, and what it saves for the backward."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from truestep.core.text_formatting import bytes_text
from truestep.model.calling import tensors_in_structure
from truestep.model.graph.graph_nodes import GraphNode, ModuleCall, TracedGraph

SAVED = "_saved_"


class AutogradGraphCollector:
    """Collects autograd's functions while the forward runs: those that are new when a module returns are the module's."""

    def __init__(self, model: nn.Module) -> None:
        self.graph = TracedGraph(ModuleCall("", model))
        self._nodes: dict[Any, GraphNode] = {}
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._parameters = {autograd_storage_id(tensor) for tensor in [*model.parameters(), *model.buffers()]}

    def note(self, tensors: Iterable[Tensor], group: ModuleCall) -> None:
        """Add to a module's call what leads to these tensors and is not there yet."""
        for tensor in tensors:
            if tensor.grad_fn is not None:
                self._add_autograd_nodes(tensor.grad_fn, group)

    def _add_autograd_nodes(self, function: Any, group: ModuleCall) -> None:
        waiting = [function]
        while waiting:  # sources before what is made of them
            current = waiting[-1]
            before = [each for each, _ in current.next_functions if each is not None]
            new = [each for each in before if each not in self._nodes]
            if current not in self._nodes and new:
                waiting += new
                continue
            waiting.pop()
            if current not in self._nodes:
                node = self._nodes[current] = self._make_autograd_node(current)
                group.children.append(node)
                self.graph.edges |= {(self._nodes[each], node) for each in before}

    def _make_autograd_node(self, function: Any) -> GraphNode:
        variable = getattr(function, "variable", None)
        if isinstance(variable, Tensor):
            name = self._names.get(id(variable), "input")
            return GraphNode(name, "parameter", tuple(variable.shape))
        shapes = [tuple(each.shape) for each in getattr(function, "_input_metadata", ())]
        name = function.name().rpartition("::")[2]
        return GraphNode(name, "gradient", shapes[0] if len(shapes) == 1 else shapes)

    def describe(self, *, saved: bool, attributes: bool) -> int:
        """Say in each node what it saves and with which attributes; return the bytes of all that no weight holds."""
        counted = set(self._parameters)
        for function, node in self._nodes.items():
            tensors, values = _saved_tensors_and_values(function)
            lines = []
            for name, tensor in tensors:
                is_new = autograd_storage_id(tensor) not in counted
                if is_new:
                    counted.add(autograd_storage_id(tensor))
                    node.saved_bytes += tensor.untyped_storage().nbytes()
                if saved:
                    lines.append(_saved_tensor_line(name, tensor, is_new=is_new))
            if attributes:
                lines += [f"{name} = {value}" for name, value in values]
            node.details = tuple(lines)
        return sum(node.saved_bytes for node in self._nodes.values())


def _saved_tensor_line(name: str, tensor: Tensor, *, is_new: bool) -> str:
    size = bytes_text(tensor.untyped_storage().nbytes()) if is_new else "held already"
    shape = " × ".join(map(str, tensor.shape)) or "scalar"
    return f"saves {name}: {shape} {str(tensor.dtype).removeprefix('torch.')}, {size}"


def _saved_tensors_and_values(function: Any) -> tuple[list[tuple[str, Tensor]], list[tuple[str, Any]]]:
    tensors, values = [], []
    for name, value in _autograd_attributes(function):
        found = tensors_in_structure(value)
        tensors += [(name, tensor) for tensor in found]
        if not found and value is not None:
            values.append((name, value))
    return tensors, values


def _autograd_attributes(function: Any) -> Iterator[tuple[str, Any]]:
    names = [name for name in dir(function) if name.startswith(SAVED) and not name.startswith("_saved_raw")]
    if hasattr(function, "saved_tensors"):  # of a torch.autograd.Function
        names.append("saved_tensors")
    for name in names:
        try:
            value = getattr(function, name)
        except RuntimeError:  # changed in place since: the backward will fail there, too
            continue
        yield name.removeprefix(SAVED), value


def autograd_storage_id(tensor: Tensor) -> int:
    """Return what views of one storage have in common, for as long as it lives."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse ones, and those of other libraries
        return id(tensor)
