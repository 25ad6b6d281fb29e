# SPDX-License-Identifier: Apache-2.0
"""Which activation made a layer's inputs, read from the model's graph where torch.fx can trace it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import wraps

import torch.nn.functional as F
from torch import Tensor, fx, nn

from truestep.core.modules import restoring_module
from truestep.nn.activations import ELEMENTWISE, Activation
from truestep.nn.layers import layer_tensor_name
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
class ActivationBefore:
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


UNKNOWN = ActivationBefore(known=False)


def preceding_activations(model: nn.Module) -> dict[str, ActivationBefore]:
    """Return for each layer, by name, the activation whose output it takes; layers that are missing are unknown.

    The model's forward is traced by torch.fx, which calls it with stand-ins for tensors. Where it can't be traced, what
    stands in an `nn.Sequential` is still known.
    """
    if wrapped := _wrapped(model):
        inner = preceding_activations(model._modules[wrapped])  # type: ignore[arg-type]
        return {f"{wrapped}.{name}".rstrip("."): before for name, before in inner.items()}
    if not any(True for _ in model.children()):
        return {"": ActivationBefore()}
    graph = _trace(model)
    found = _in_sequences(model) if graph is None else _in_graph(model, graph)
    return {**found, **_in_torchs_own(model)}


def _wrapped(model: nn.Module) -> str | None:
    """Return the name of the module that a wrapper calls, whose own forward torch.fx can't follow."""
    parallel = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
    return "_orig_mod" if "_orig_mod" in model._modules else "module" if parallel else None


class _LayerTracer(fx.Tracer):
    """Takes the layers of this package as wholes, as it does torch's."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, VanillaDropout) or super().is_leaf_module(m, module_qualified_name)


def _trace(model: nn.Module) -> fx.Graph | None:
    """Return the graph of the model's forward, or None where torch.fx can't trace it."""
    with restoring_module(model):  # a forward may draw, and write to buffers
        try:
            return _LayerTracer().trace(model)
        except Exception:  # noqa: BLE001 - whatever the user's forward raises for a stand-in, the answer is "unknown"
            return None


def _in_graph(model: nn.Module, graph: fx.Graph) -> dict[str, ActivationBefore]:
    modules = dict(model.named_modules(remove_duplicate=False))
    names = {module: name for name, module in model.named_modules()}
    seen: dict[str, dict[str, ActivationBefore]] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            before = {each.name: each for each in _inputs_from(node, modules, set())}
            seen.setdefault(names[modules[str(node.target)]], {}).update(before)
    return {name: next(iter(kinds.values())) if len(kinds) == 1 else UNKNOWN for name, kinds in seen.items()}


def _inputs_from(
    node: fx.Node, modules: dict[str, nn.Module], seen: set[fx.Node]
) -> Iterator[ActivationBefore]:
    """Yield what made each of the node's inputs."""
    for source in node.all_input_nodes:
        if source in seen:
            continue
        seen.add(source)
        activation = _activation(source, modules)
        if activation is not None:
            yield ActivationBefore(activation)
        elif _passes(source, modules):
            yield from _inputs_from(source, modules, seen)
        else:
            yield ActivationBefore()


def _activation(node: fx.Node, modules: dict[str, nn.Module]) -> Activation | None:
    if node.op == "call_module":
        module = modules[str(node.target)]
        return module if isinstance(module, ELEMENTWISE) else None
    function = _FUNCTIONS.get(_name(node).rstrip("_"))
    options = {key: value for key, value in node.kwargs.items() if key not in {"input", "inplace"}}
    if function is None or any(isinstance(each, fx.Node) for each in (*node.args[1:], *options.values())):
        return None

    @wraps(function)
    def applied(values: Tensor) -> Tensor:
        return function(values, *node.args[1:], **options)

    return applied


def _passes(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], _PASSES)
    return node.op in {"call_function", "call_method"} and _name(node) in _PASSING_NAMES


def _name(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _in_sequences(model: nn.Module) -> dict[str, ActivationBefore]:
    found = {}
    for path, sequence in model.named_modules():
        if isinstance(sequence, nn.Sequential):
            before = ActivationBefore() if not path else UNKNOWN
            for name, layer in sequence.named_children():
                found[layer_tensor_name(path, name)] = before
                if isinstance(layer, ELEMENTWISE):
                    before = ActivationBefore(layer)
                elif not isinstance(layer, _PASSES):
                    before = UNKNOWN if isinstance(layer, nn.Sequential) else ActivationBefore()
    return found


def _in_torchs_own(model: nn.Module) -> dict[str, ActivationBefore]:
    """Return what torch's transformer layers do, which fx takes as a whole."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            found[layer_tensor_name(path, "out_proj")] = ActivationBefore()
        elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            found[layer_tensor_name(path, "linear1")] = ActivationBefore()
            found[layer_tensor_name(path, "linear2")] = ActivationBefore(module.activation)
    return found
