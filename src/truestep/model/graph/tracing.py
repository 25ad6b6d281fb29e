# SPDX-License-Identifier: Apache-2.0
"""One forward of a model, seen from torch's functions and the modules' hooks: what was called where, on whose results."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from truestep.core.tensor_bytes import tensor_version
from truestep.model.calling import (
    Arguments,
    ForwardModulePath,
    run_forward,
    shapes_in_structure,
    tensors_in_structure,
)
from truestep.model.graph.backward import AutogradGraphCollector, autograd_storage_id
from truestep.model.graph.graph_nodes import GraphNode, ModuleCall, TracedGraph


def trace_model(model: nn.Module, arguments: Arguments) -> tuple[TracedGraph, AutogradGraphCollector]:
    """Run the model with gradients on: its modules and operations, and what autograd holds; a failing forward is a ModelError."""
    tracer = _ForwardTracer(model, arguments)
    with torch.enable_grad(), tracer.path.followed(tracer.enter, tracer.leave), tracer:
        output = run_forward(model, arguments)
    tracer.finish(output)
    return tracer.graph, tracer.backward


class _ForwardTracer(TorchFunctionMode):
    """Notes each of torch's functions as a node of the module that called it.

    A function that only looks at a tensor in another way (a view, a transposition) is no node: what it gives counts as its
    input's. Torch's functions don't see the functions within them.
    """

    def __init__(self, model: nn.Module, arguments: Arguments) -> None:
        super().__init__()
        self.graph = TracedGraph(ModuleCall("", model))
        self.backward = AutogradGraphCollector(model)
        self._model = model
        self.path = ForwardModulePath(model)
        # the calls under way, of both graphs
        self._groups = [(self.graph.root, self.backward.graph.root)]
        self._producers: dict[int, GraphNode] = {}
        self._kept: list[Any] = []  # an id tells tensors apart only as long as they live
        for number, tensor in enumerate(tensors_in_structure(arguments), 1):
            name = _input_name(arguments, tensor, number)
            self._append_node_and_outputs(GraphNode(name, "input", tuple(tensor.shape)), [tensor])

    # ------------------------------------------------------------------ operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [(tensor, tensor_version(tensor)) for tensor in tensors_in_structure((args, kwargs or {}))]
        result = func(*args, **(kwargs or {}))
        outputs = tensors_in_structure(result)
        changed = [tensor for tensor, version in inputs if tensor_version(tensor) != version]
        if outputs or changed:
            self._add_node(func.__name__.strip("_"), [tensor for tensor, _ in inputs], outputs, changed)
        return result

    def _add_node(
        self, name: str, inputs: list[Tensor], outputs: list[Tensor], changed: list[Tensor]
    ) -> None:
        storages = {autograd_storage_id(tensor): tensor for tensor in reversed(inputs)}
        made = [tensor for tensor in outputs if autograd_storage_id(tensor) not in storages]
        if made or changed:
            node = GraphNode(name, "operation", shapes_in_structure(outputs or changed))
            self._add_input_edges(node, inputs)
            self._append_node_and_outputs(node, [*outputs, *changed])
            return
        for tensor in outputs:
            seen = self._producers.get(id(storages[autograd_storage_id(tensor)]))
            if seen is not None:
                self._producers[id(tensor)] = seen
                self._kept.append(tensor)

    def _add_input_edges(self, node: GraphNode, inputs: list[Tensor]) -> None:
        for tensor in inputs:
            if (source := self._producers.get(id(tensor))) is not None:
                self.graph.edges.add((source, node))

    def _append_node_and_outputs(self, node: GraphNode, tensors: list[Tensor]) -> None:
        self._groups[-1][0].children.append(node)
        for tensor in tensors:
            self._producers[id(tensor)] = node
            self._kept.append(tensor)

    # ------------------------------------------------------------------ modules

    def enter(self, name: str, inputs: Any) -> None:
        """A module is called; the model's own call is the root."""
        # What the caller did since it called the last module.
        self.backward.note(tensors_in_structure(inputs), self._groups[-1][1])
        if len(self.path.entered) > 1:
            module = self.path.entered[-1][1]
            self._groups.append((ModuleCall(name, module), ModuleCall(name, module)))
            for above, group in zip(*self._groups[-2:], strict=True):
                above.children.append(group)

    def leave(self, _: str, inputs: Any, output: Any) -> None:
        """The innermost module has returned."""
        outputs, module = tensors_in_structure(output), self.path.entered[-1][1]
        group, other = self._groups[-1]
        self.backward.note(outputs, other)
        group.shapes = other.shapes = shapes_in_structure(output)
        if not group.children and module is not self._model:
            self._add_opaque_module_node(group, tensors_in_structure(inputs), outputs)
        group.is_closed = type(module).__module__.startswith("torch.nn") and all(
            isinstance(child, GraphNode) for child in group.children
        )
        if len(self.path.entered) > 1:
            self._groups.pop()

    def _add_opaque_module_node(self, group: ModuleCall, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """A module that called none of torch's functions (a change of shape): it is one node, unless it gave back what it got."""
        given = {id(tensor) for tensor in inputs}
        made = [tensor for tensor in outputs if id(tensor) not in given]
        if made:
            node = GraphNode(type(group.module).__name__, "operation", shapes_in_structure(outputs))
            self._add_input_edges(node, inputs)
            self._append_node_and_outputs(node, made)

    def finish(self, output: Any) -> None:
        """Add the outputs and what autograd holds of them."""
        outputs = tensors_in_structure(output)
        self.backward.note(outputs, self.backward.graph.root)
        for tensor in outputs:
            node = GraphNode("output", "output", tuple(tensor.shape))
            self._add_input_edges(node, [tensor])
            self.graph.root.children.append(node)
        self.graph.root.shapes = self.backward.graph.root.shapes = shapes_in_structure(output)


def _input_name(arguments: Arguments, tensor: Tensor, number: int) -> str:
    named = next((key for key, value in arguments[1].items() if value is tensor), None)
    return named or ("input" if len(tensors_in_structure(arguments)) == 1 else f"input {number}")
