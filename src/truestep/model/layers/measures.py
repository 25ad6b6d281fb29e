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

KINDS = {nn.ReLU: "relu", nn.ReLU6: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
STEPS = {"ReluBackward0": "relu", "TanhBackward0": "tanh", "SigmoidBackward0": "sigmoid"}  # of autograd
OTHERS = (nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Hardswish)


def activation_kind_of_module(module: nn.Module) -> str:
    """Return which activation a module is; "" for what is none, or can't die and saturate."""
    return KINDS.get(type(module), "")


def sample_rows_by_unit(tensor: Tensor, axis: int) -> Tensor:
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


def layer_measures_and_histogram(rows: Tensor, kind: str, silent_before: list[Tensor]) -> Tensor:
    """Return the measures and a histogram in one vector; `silent_before`: which units were 0 in earlier looks."""
    mean = rows.mean()
    centred = rows - mean
    spread = centred.square().mean().sqrt()
    zero = saturated = dead = mean.new_zeros(())
    if kind == "relu":
        is_zero = rows == 0
        silent = is_zero.all(0)
        zero = is_zero.count_nonzero() / is_zero.numel()
        silent_before.insert(0, silent)
        dead = torch.stack(silent_before).all(0).count_nonzero() / silent.numel()
    elif kind:
        scaled = rows.abs() if kind == "tanh" else (2 * rows - 1).abs()
        saturated = (scaled > SATURATED[kind]).count_nonzero() / rows.numel()
    some = centred.flatten()[:: centred.numel() // LIMIT_OF_COUNTS | 1]
    counts = torch.histc((some / (spread + 1e-30)).clamp_(-SPAN, SPAN), NUM_BINS, -SPAN, SPAN)
    return torch.cat([torch.stack([mean, spread, rows.abs().amax(), zero, saturated, dead]), counts])


def nonzero_root_mean_squares(samples: list[Tensor]) -> list[Tensor]:
    """Return each one's root mean square of what is not 0: of an embedding's gradient, of the rows of this batch.

    All in a few calls: one at a time they cost more than the layers do.
    """
    if not samples:
        return []
    norms = torch._foreach_norm(samples)
    counts = torch._foreach_norm(torch._foreach_sign(samples))  # the roots of how many are not 0
    return list(torch._foreach_div(norms, torch._foreach_clamp_min(counts, 1.0)))


def gradient_histogram(values: Tensor, size: Tensor) -> Tensor:
    """Return how many values lie in each bin, from `SPAN` root mean squares (`size`) below 0 to as many above."""
    some = values[:: values.numel() // LIMIT_OF_COUNTS | 1]
    return torch.histc((some / (size + 1e-30)).clamp(-SPAN, SPAN), NUM_BINS, -SPAN, SPAN)


def sample_tensor_values(tensor: Tensor) -> Tensor:
    """Return a copy of some of a tensor's values in float32, the same ones each time."""
    values = tensor.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    flat = values.flatten()
    # an odd stride, so that it meets every column of a matrix whose width is a power of 2
    stride = flat.numel() // LIMIT_OF_SIZE | 1 if flat.numel() > LIMIT_OF_SIZE else 1
    return flat[::stride].to(torch.float32, copy=True)
