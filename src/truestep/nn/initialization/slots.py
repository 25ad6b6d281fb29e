# SPDX-License-Identifier: Apache-2.0
"""The tensors of each kind of layer, and what each of them is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from truestep.nn.initialization.presets import Fans
from truestep.nn.layers import NORMS, full_name

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_PRODUCTS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True)
class Slot:
    """One tensor of one layer: a weight, a recurrent or an embedding one, a scale around 1, or a bias."""

    layer: str
    module: nn.Module = field(repr=False)
    tensor: str
    role: str
    chunks: int = 1  # matrices that stand below one another: gates, or query, key and value

    @property
    def name(self) -> str:
        """The tensor's name in the model."""
        return full_name(self.layer, self.tensor)

    @property
    def held(self) -> nn.Module | Tensor:
        """What is the same where two layers share this tensor: the parameter, or what computes it."""
        held: nn.Module | Tensor = (
            self.module.parametrizations[self.tensor]  # type: ignore[index,assignment]
            if self.is_parametrized
            else self.module._parameters[self.tensor]
        )
        return held

    @property
    def is_parametrized(self) -> bool:
        """Tell whether the tensor is computed from others."""
        return parametrize.is_parametrized(self.module, self.tensor)

    @property
    def is_bias(self) -> bool:
        """Tell whether it is added rather than multiplied with."""
        return self.role in {"bias", "forget bias"}

    @property
    def is_frozen(self) -> bool:
        """Tell whether nothing of it is trained."""
        held = self.held
        parts = list(held.parameters()) if isinstance(held, nn.Module) else [held]
        return not any(part.requires_grad for part in parts)

    @property
    def value(self) -> Tensor:
        """The tensor as it is used in evaluation mode."""
        held = self.held
        if isinstance(held, Tensor):
            return held.detach()
        modes = {module: module.training for module in held.modules()}
        with torch.no_grad():
            value: Tensor = held.eval()()
        for module, training in modes.items():
            module.training = training
        return value

    def fans(self) -> Fans:
        """Return the fans of one of its chunks."""
        return fans(self.module, tuple(self.value.shape), self.chunks)


def fans(layer: nn.Module, shape: tuple[int, ...], chunks: int = 1) -> Fans:
    """Return how many inputs an output of the layer sums, and how many outputs an input feeds.

    Groups and strides count: a strided convolution's input feeds fewer outputs, a transposed one's output sums fewer
    inputs. `nn.init` reads both from the shape alone, and takes a transposed convolution's fans the wrong way round.
    """
    if isinstance(layer, nn.modules.conv._ConvNd):
        taps = math.prod(layer.kernel_size) / layer.groups
        strides = math.prod(layer.stride)
        inputs, outputs = layer.in_channels * taps, layer.out_channels * taps
        return Fans(inputs / strides, outputs) if layer.transposed else Fans(inputs, outputs / strides)
    return Fans(math.prod(shape[1:]), shape[0] / chunks)


def slots(model: nn.Module) -> Iterator[Slot]:
    """Yield the tensors of layers whose kind is known, in the model's order."""
    for layer, module in model.named_modules():
        for tensor, role, chunks in _tensors(module):
            if module._parameters.get(tensor) is not None or parametrize.is_parametrized(module, tensor):
                yield Slot(layer, module, tensor, role, chunks)


def _tensors(module: nn.Module) -> Iterator[tuple[str, str, int]]:
    if isinstance(module, _PRODUCTS):
        yield from (("weight", "weight", 1), ("bias", "bias", 1))
    elif isinstance(module, _EMBEDDINGS):
        yield "weight", "embedding", 1
    elif isinstance(module, NORMS):
        yield from (("weight", "scale", 1), ("bias", "bias", 1))
    elif isinstance(module, nn.MultiheadAttention):
        yield from (("in_proj_weight", "weight", 3), ("in_proj_bias", "bias", 1))
        yield from ((f"{part}_proj_weight", "weight", 1) for part in "qkv")
    elif isinstance(module, _RECURRENT):
        yield from _recurrent(module)


def _recurrent(module: nn.Module) -> Iterator[tuple[str, str, int]]:
    gates = (
        4
        if isinstance(module, nn.LSTM | nn.LSTMCell)
        else 3
        if isinstance(module, nn.GRU | nn.GRUCell)
        else 1
    )
    names = (
        [name for each in module._all_weights for name in each]
        if isinstance(module, nn.RNNBase)
        else ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    )
    for name in names:
        if name.startswith("bias_ih") and gates == 4:
            yield name, "forget bias", 1
        elif name.startswith("bias"):
            yield name, "bias", 1
        elif name.startswith("weight_hr"):
            yield name, "weight", 1
        else:
            yield name, "recurrent" if name.startswith("weight_hh") else "weight", gates
