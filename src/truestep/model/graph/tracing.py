# SPDX-License-Identifier: Apache-2.0
"""One forward of a model, seen from torch's functions and the modules' hooks: what was called where, on whose results."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from truestep.core.tensor_bytes import times_written
from truestep.model.calling import Arguments, ModulePath, forward_tensors, run_forward, summary_shapes
from truestep.model.graph.backward import AutogradGraphCollector, autograd_storage_id
from truestep.model.graph.tree import GraphNode, ModuleCall, TracedGraph


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
        self.path = ModulePath(model)
        # the calls under way, of both graphs
        self._groups = [(self.graph.root, self.backward.graph.root)]
        self._producers: dict[int, GraphNode] = {}
        self._kept: list[Any] = []  # an id tells tensors apart only as long as they live
        for number, tensor in enumerate(forward_tensors(arguments), 1):
            name = _input_name(arguments, tensor, number)
            self._produce(GraphNode(name, "input", tuple(tensor.shape)), [tensor])

    # ------------------------------------------------------------------ operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [(tensor, times_written(tensor)) for tensor in forward_tensors((args, kwargs or {}))]
        result = func(*args, **(kwargs or {}))
        outputs = forward_tensors(result)
        changed = [tensor for tensor, version in inputs if times_written(tensor) != version]
        if outputs or changed:
            self._add_node(func.__name__.strip("_"), [tensor for tensor, _ in inputs], outputs, changed)
        return result

    def _add_node(
        self, name: str, inputs: list[Tensor], outputs: list[Tensor], changed: list[Tensor]
    ) -> None:
        storages = {autograd_storage_id(tensor): tensor for tensor in reversed(inputs)}
        made = [tensor for tensor in outputs if autograd_storage_id(tensor) not in storages]
        if made or changed:
            node = GraphNode(name, "operation", summary_shapes(outputs or changed))
            self._consume(node, inputs)
            self._produce(node, [*outputs, *changed])
            return
        for tensor in outputs:
            seen = self._producers.get(id(storages[autograd_storage_id(tensor)]))
            if seen is not None:
                self._producers[id(tensor)] = seen
                self._kept.append(tensor)

    def _consume(self, node: GraphNode, inputs: list[Tensor]) -> None:
        for tensor in inputs:
            if (source := self._producers.get(id(tensor))) is not None:
                self.graph.edges.add((source, node))

    def _produce(self, node: GraphNode, tensors: list[Tensor]) -> None:
        self._groups[-1][0].children.append(node)
        for tensor in tensors:
            self._producers[id(tensor)] = node
            self._kept.append(tensor)

    # ------------------------------------------------------------------ modules

    def enter(self, name: str, inputs: Any) -> None:
        """A module is called; the model's own call is the root."""
        # What the caller did since it called the last module.
        self.backward.note(forward_tensors(inputs), self._groups[-1][1])
        if len(self.path.entered) > 1:
            module = self.path.entered[-1][1]
            self._groups.append((ModuleCall(name, module), ModuleCall(name, module)))
            for above, group in zip(*self._groups[-2:], strict=True):
                above.children.append(group)

    def leave(self, _: str, inputs: Any, output: Any) -> None:
        """The innermost module has returned."""
        outputs, module = forward_tensors(output), self.path.entered[-1][1]
        group, other = self._groups[-1]
        self.backward.note(outputs, other)
        group.shapes = other.shapes = summary_shapes(output)
        if not group.children and module is not self._model:
            self._opaque(group, forward_tensors(inputs), outputs)
        group.is_closed = type(module).__module__.startswith("torch.nn") and all(
            isinstance(child, GraphNode) for child in group.children
        )
        if len(self.path.entered) > 1:
            self._groups.pop()

    def _opaque(self, group: ModuleCall, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """A module that called none of torch's functions (a change of shape): it is one node, unless it gave back what it got."""
        given = {id(tensor) for tensor in inputs}
        made = [tensor for tensor in outputs if id(tensor) not in given]
        if made:
            node = GraphNode(type(group.module).__name__, "operation", summary_shapes(outputs))
            self._consume(node, inputs)
            self._produce(node, made)

    def finish(self, output: Any) -> None:
        """Add the outputs and what autograd holds of them."""
        outputs = forward_tensors(output)
        self.backward.note(outputs, self.backward.graph.root)
        for tensor in outputs:
            node = GraphNode("output", "output", tuple(tensor.shape))
            self._consume(node, [tensor])
            self.graph.root.children.append(node)
        self.graph.root.shapes = self.backward.graph.root.shapes = summary_shapes(output)


def _input_name(arguments: Arguments, tensor: Tensor, number: int) -> str:
    named = next((key for key, value in arguments[1].items() if value is tensor), None)
    return named or ("input" if len(forward_tensors(arguments)) == 1 else f"input {number}")
