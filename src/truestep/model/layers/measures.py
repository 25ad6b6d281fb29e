# SPDX-License-Identifier: Apache-2.0
"""What is measured of one tensor, on its device and without waiting for it."""

import math

import torch
from torch import Tensor, nn

LIMIT = 1 << 13  # values of a tensor that are looked at, spread over examples and positions
LIMIT_OF_SIZE = 1 << 12  # the same where a root mean square is all that is wanted
LIMIT_OF_COUNTS = 1 << 11  # and of a histogram, which costs the most
LEAST = 4  # places that are kept of each axis
NUM_BINS = 24
SPAN = 4.0  # spreads to either side of the mean that a histogram reaches
MEASURES = ("mean", "spread", "largest", "zero", "saturated", "dead")
SATURATED = {"tanh": 0.97, "sigmoid": 0.97}  # beyond it the slope is below a twentieth of its best

KINDS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
}
STEPS = {"ReluBackward0": "relu", "TanhBackward0": "tanh", "SigmoidBackward0": "sigmoid"}  # of autograd
OTHERS = (nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Hardswish)


def kind_of(module: nn.Module) -> str:
    """Return which activation a module is; "" for what is none, or can't die and saturate."""
    return KINDS.get(type(module), "")


def rows_of(tensor: Tensor, axis: int) -> Tensor:
    """Return some of a tensor's values as (places, units) in float32; `axis` is that of the units."""
    kept = tensor.detach()
    if kept.dim() < 2:
        kept, axis = kept.reshape(-1, 1), 1
    axis %= kept.dim()
    excess = kept.numel() / LIMIT
    for dim in reversed(range(kept.dim())):
        if dim != axis and excess > 1:
            stride = min(math.ceil(excess), max(1, kept.shape[dim] // LEAST))
            kept = kept[(slice(None),) * dim + (slice(None, None, stride),)]
            excess /= stride
    return kept.movedim(axis, -1).reshape(-1, kept.shape[axis]).float()


def measured(rows: Tensor, kind: str, silent_before: list[Tensor]) -> Tensor:
    """Return the measures and a histogram in one vector; `silent_before`: which units were 0 in earlier looks."""
    mean = rows.mean()
    centred = rows - mean
    spread = centred.square().mean().sqrt()
    nothing = mean.new_zeros(())
    zero = saturated = dead = nothing
    if kind == "relu":
        is_zero = rows == 0
        silent = is_zero.all(0)
        zero, dead = is_zero.float().mean(), torch.stack([silent, *silent_before]).all(0).float().mean()
        silent_before.insert(0, silent)
    elif kind:
        scaled = rows.abs() if kind == "tanh" else (2 * rows - 1).abs()
        saturated = (scaled > SATURATED[kind]).float().mean()
    some = centred.flatten()[:: centred.numel() // LIMIT_OF_COUNTS | 1]
    counts = torch.histc((some / (spread + 1e-30)).clamp(-SPAN, SPAN), NUM_BINS, -SPAN, SPAN)
    return torch.cat([torch.stack([mean, spread, rows.abs().amax(), zero, saturated, dead]), counts])


def size_of(tensor: Tensor) -> Tensor:
    """Return the root mean square of what is not 0: of an embedding's gradient, of the rows of this batch."""
    values = tensor.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    values = some_of(values)
    norm = torch.linalg.vector_norm(values, dtype=torch.float32)
    size: Tensor = norm / values.count_nonzero().clamp(min=1).sqrt()
    return size


def some_of(tensor: Tensor) -> Tensor:
    """Return a copy of some of a tensor's values, the same ones each time."""
    flat = tensor.detach().flatten()
    if flat.numel() <= LIMIT_OF_SIZE:
        return flat.clone()
    stride = (
        flat.numel() // LIMIT_OF_SIZE | 1
    )  # odd, so that it meets every column of a matrix whose width is a power of 2
    return flat[::stride].clone()
