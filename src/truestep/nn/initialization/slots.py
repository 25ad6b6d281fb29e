# SPDX-License-Identifier: Apache-2.0
"""The tensors of each kind of layer, and what each of them is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from torch import Tensor, nn

from truestep.core.modules import NORMS, restoring_module
from truestep.nn.layers import LayerTensor

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_PRODUCTS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True)
class Fans:
    """How many inputs one output sums, and how many outputs one input feeds."""

    inputs: float
    outputs: float


@dataclass(frozen=True)
class InitSlot(LayerTensor):
    """One tensor of one layer: a weight, a recurrent or an embedding one, a scale around 1, or a bias."""

    role: str
    chunks: int = 1  # matrices that stand below one another: gates, or query, key and value

    @property
    def held(self) -> nn.Module | Tensor:
        """What is the same where two layers share this tensor: the parameter, or what computes it."""
        if self.is_parametrized:
            return self.parametrization
        parameter = self.module._parameters[self.tensor]
        assert parameter is not None
        return parameter

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
        with restoring_module(held):
            value: Tensor = held.eval()()
        return value

    def fans(self) -> Fans:
        """Return how many inputs an output of one of its chunks sums, and how many outputs an input feeds.

        Groups and strides count: a strided convolution's input feeds fewer outputs, a transposed one's output sums fewer
        inputs. `nn.init` reads both from the shape alone, and takes a transposed convolution's fans the wrong way round.
        """
        layer, shape = self.module, self.value.shape
        if isinstance(layer, nn.modules.conv._ConvNd):
            taps = math.prod(layer.kernel_size) / layer.groups
            strides = math.prod(layer.stride)
            inputs, outputs = layer.in_channels * taps, layer.out_channels * taps
            return Fans(inputs / strides, outputs) if layer.transposed else Fans(inputs, outputs / strides)
        return Fans(math.prod(shape[1:]), shape[0] / self.chunks)


def init_slots(model: nn.Module) -> Iterator[InitSlot]:
    """Yield the tensors of layers whose kind is known, in the model's order."""
    for layer, module in model.named_modules():
        for tensor, role, chunks in _tensors(module):
            slot = InitSlot(layer, module, tensor, role, chunks)
            if slot.is_parametrized or module._parameters.get(tensor) is not None:
                yield slot


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
    is_lstm = isinstance(module, nn.LSTM | nn.LSTMCell)
    gates = 4 if is_lstm else 3 if isinstance(module, nn.GRU | nn.GRUCell) else 1
    names = (("weight_ih", "weight_hh", "bias_ih", "bias_hh"),)
    for name in chain.from_iterable(getattr(module, "_all_weights", names)):
        if name.startswith("bias"):
            yield name, "forget bias" if is_lstm and name.startswith("bias_ih") else "bias", 1
        elif name.startswith("weight_hr"):
            yield name, "weight", 1
        else:
            yield name, "recurrent" if name.startswith("weight_hh") else "weight", gates
