# SPDX-License-Identifier: Apache-2.0
"""Which activation made a layer's inputs, read from the model's graph where torch.fx can trace it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import wraps

import torch.nn.functional as F
from torch import Tensor, fx, nn

from truestep.core.module_inspection import restoring_module
from truestep.nn.activations import ELEMENTWISE, Activation
from truestep.nn.layer_lookup import layer_tensor_name
from truestep.nn.vanilla_dropout import VanillaDropout

# What leaves the question to the operation before: it moves, selects or averages numbers. A norm ends it: what it gives
# has size 1 whatever came before.
_PASSES = (
    *(nn.modules.dropout._DropoutNd, VanillaDropout, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample),
    *(nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd, nn.modules.padding._ConstantPadNd),
    *(nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._AdaptiveMaxPoolNd, nn.PixelShuffle),
)
_PASSING = """
    flatten view reshape permute transpose contiguous squeeze unsqueeze cat chunk split getitem pad interpolate to float clone
    mean dropout dropout1d dropout2d dropout3d alpha_dropout max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
"""
_PASSING_NAMES = frozenset(_PASSING.split())
_ACTIVATIONS = """
    relu relu6 leaky_relu elu celu selu gelu silu mish tanh sigmoid logsigmoid softplus softsign hardswish hardsigmoid hardtanh
    tanhshrink
"""
_FUNCTIONS: dict[str, Activation] = {name: getattr(F, name) for name in _ACTIVATIONS.split()}


@dataclass(frozen=True)
class PrecedingActivation:
    """What made a layer's inputs: an activation, nothing that counts (None), or `known=False`."""

    activation: Activation | None = None
    known: bool = True

    @property
    def name(self) -> str:
        """How reports call it."""
        if not self.known:
            return "unknown"
        if self.activation is None:
            return "none"
        return getattr(self.activation, "__name__", "") or type(self.activation).__name__


UNKNOWN = PrecedingActivation(known=False)


def preceding_activations(model: nn.Module) -> dict[str, PrecedingActivation]:
    """Return for each layer, by name, the activation whose output it takes; layers that are missing are unknown.

    The model's forward is traced by torch.fx, which calls it with stand-ins for tensors. Where it can't be traced, what
    stands in an `nn.Sequential` is still known.
    """
    if wrapped := _name_of_wrapped_module(model):
        inner = preceding_activations(model._modules[wrapped])  # type: ignore[arg-type]
        return {f"{wrapped}.{name}".rstrip("."): before for name, before in inner.items()}
    if not any(True for _ in model.children()):
        return {"": PrecedingActivation()}
    graph = _trace_with_fx(model)
    found = (
        _preceding_in_sequentials(model) if graph is None else _preceding_activations_in_graph(model, graph)
    )
    return {**found, **_preceding_in_transformer_layers(model)}


def _name_of_wrapped_module(model: nn.Module) -> str | None:
    """Return the name of the module that a wrapper calls, whose own forward torch.fx can't follow."""
    parallel = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
    return "_orig_mod" if "_orig_mod" in model._modules else "module" if parallel else None


class _LayerTracer(fx.Tracer):
    """Takes the layers of this package as wholes, as it does torch's."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, VanillaDropout) or super().is_leaf_module(m, module_qualified_name)


def _trace_with_fx(model: nn.Module) -> fx.Graph | None:
    """Return the graph of the model's forward, or None where torch.fx can't trace it."""
    with restoring_module(model):  # a forward may draw, and write to buffers
        try:
            return _LayerTracer().trace(model)
        except Exception:  # noqa: BLE001 - whatever the user's forward raises for a stand-in, the answer is "unknown"
            return None


def _preceding_activations_in_graph(model: nn.Module, graph: fx.Graph) -> dict[str, PrecedingActivation]:
    modules = dict(model.named_modules(remove_duplicate=False))
    names = {module: name for name, module in model.named_modules()}
    seen: dict[str, dict[str, PrecedingActivation]] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            before = {each.name: each for each in _sources_of_node_inputs(node, modules, set())}
            seen.setdefault(names[modules[str(node.target)]], {}).update(before)
    return {name: next(iter(kinds.values())) if len(kinds) == 1 else UNKNOWN for name, kinds in seen.items()}


def _sources_of_node_inputs(
    node: fx.Node, modules: dict[str, nn.Module], seen: set[fx.Node]
) -> Iterator[PrecedingActivation]:
    """Yield what made each of the node's inputs."""
    for source in node.all_input_nodes:
        if source in seen:
            continue
        seen.add(source)
        activation = _activation_of_node(source, modules)
        if activation is not None:
            yield PrecedingActivation(activation)
        elif _is_pass_through_node(source, modules):
            yield from _sources_of_node_inputs(source, modules, seen)
        else:
            yield PrecedingActivation()


def _activation_of_node(node: fx.Node, modules: dict[str, nn.Module]) -> Activation | None:
    if node.op == "call_module":
        module = modules[str(node.target)]
        return module if isinstance(module, ELEMENTWISE) else None
    function = _FUNCTIONS.get(_node_function_name(node).rstrip("_"))
    options = {key: value for key, value in node.kwargs.items() if key not in {"input", "inplace"}}
    if function is None or any(isinstance(each, fx.Node) for each in (*node.args[1:], *options.values())):
        return None

    @wraps(function)
    def apply_with_options(values: Tensor) -> Tensor:
        return function(values, *node.args[1:], **options)

    return apply_with_options


def _is_pass_through_node(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], _PASSES)
    return node.op in {"call_function", "call_method"} and _node_function_name(node) in _PASSING_NAMES


def _node_function_name(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _preceding_in_sequentials(model: nn.Module) -> dict[str, PrecedingActivation]:
    found = {}
    for path, sequence in model.named_modules():
        if isinstance(sequence, nn.Sequential):
            before = PrecedingActivation() if not path else UNKNOWN
            for name, layer in sequence.named_children():
                found[layer_tensor_name(path, name)] = before
                if isinstance(layer, ELEMENTWISE):
                    before = PrecedingActivation(layer)
                elif not isinstance(layer, _PASSES):
                    before = UNKNOWN if isinstance(layer, nn.Sequential) else PrecedingActivation()
    return found


def _preceding_in_transformer_layers(model: nn.Module) -> dict[str, PrecedingActivation]:
    """Return what torch's transformer layers do, which fx takes as a whole."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            found[layer_tensor_name(path, "out_proj")] = PrecedingActivation()
        elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            found[layer_tensor_name(path, "linear1")] = PrecedingActivation()
            found[layer_tensor_name(path, "linear2")] = PrecedingActivation(module.activation)
    return found
