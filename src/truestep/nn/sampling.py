# SPDX-License-Identifier: Apache-2.0
"""Drawing classes or tokens from logits."""

import torch
from torch import Tensor

from truestep.core.errors import BatchError, OptionError
from truestep.core.user_frames import warn_user

_NEAR = 1e-3  # what rounding in half precision leaves of a sum of probabilities of many classes


def sample_logits(
    logits: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    num_samples: int = 1,
    replacement: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw indices of the last axis with the probabilities that logits stand for.

    `torch.multinomial` takes weights: it draws from positive logits with the wrong probabilities, without a word. Here logits
    become probabilities first, in float32 or better; an index whose probability is 0 is never drawn.

    Args:
        logits: (..., classes), any real floating type; -inf forbids a class.
        temperature: logits are divided by it; 0 takes the largest. A number, or a tensor of the leading shape.
        top_k: keep the so many largest; of equal ones the first.
        top_p: of what is left keep the fewest, largest first, whose probabilities add up to so much (Holtzman et al., 2020,
            arXiv:1904.09751).
        num_samples: draws for each row.
        replacement: whether an index can be drawn twice. Without, a row needs `num_samples` indices that are possible; fewer are an
            error (on a device it is raised there, later, since nothing is read back).
        generator: of the logits' device; the global stream by default, which is keyed inside updates and loops of a run.

    Returns:
        int64, (..., num_samples).

    Raises:
        BatchError: a row with NaN, +inf or without any possible class, or with fewer than `num_samples`.
    """
    _check_options(logits, top_k, top_p, num_samples, replacement)
    values = logits.detach()
    values = values if values.dtype == torch.float64 else values.float()
    _warn_if_probabilities(values)
    _raise_unless(
        ~(values.isnan() | values.isposinf()).any(),
        "logits holds NaN or +inf; no probability follows from them.",
    )
    greedy = torch.as_tensor(temperature, device=values.device) == 0
    values = _divide_by_temperature(values, temperature, greedy)
    values = _filter_top_k_and_top_p(values, top_k, top_p)
    possible = (values > -torch.inf).sum(-1)
    needed = 1 if replacement else num_samples
    _raise_unless(
        (possible >= needed).all(),
        f"A row of logits has fewer than {needed} classes that can be drawn (the others are -inf, or top_k or top_p left them "
        "out). Draw fewer, or give replacement=True.",
    )
    probabilities = values.softmax(-1)
    # softmax may round a possible class to 0, which torch.multinomial would draw when it runs out of others.
    tiny = torch.finfo(probabilities.dtype).tiny
    probabilities = torch.where(values > -torch.inf, probabilities.clamp(min=tiny), 0.0)
    flat = probabilities.reshape(-1, logits.shape[-1])
    drawn = torch.multinomial(flat, num_samples, replacement, generator=generator)
    return drawn.reshape(*logits.shape[:-1], num_samples)


def _warn_if_probabilities(values: Tensor) -> None:
    """Warn where each row adds up to 1 and has no negative number; of a device, which would be waited for, none is read."""
    if not values.is_cpu or values.ndim == 0 or values.shape[-1] < 2 or torch.compiler.is_compiling():
        return
    are_shares = (values >= 0).all() & ((values.sum(-1) - 1).abs() < _NEAR).all()
    if values.numel() and bool(are_shares):
        warn_user(
            "ts.sample_logits was given rows that add up to 1, as probabilities do, and takes logits: a softmax of these draws "
            "almost evenly. Give the outputs before their softmax, or the logarithm: ts.sample_logits(probabilities.log())."
        )


def _check_options(
    logits: Tensor, top_k: int | None, top_p: float | None, num_samples: int, replacement: bool
) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise BatchError(f"logits is of type {kind}; scores of classes are real floating-point numbers.")
    if logits.ndim == 0 or 0 in logits.shape:
        raise BatchError(f"logits has shape {tuple(logits.shape)}; expected (..., classes), none of them 0.")
    if top_k is not None and top_k < 1:
        raise OptionError(f"top_k={top_k}: nothing is left to draw. Give at least 1, or None for all.")
    if top_p is not None and not 0 < top_p <= 1:
        raise OptionError(f"top_p={top_p}: give a share of the probability, above 0 and at most 1.")
    if num_samples < 1:
        raise OptionError(f"num_samples={num_samples}: give at least 1.")
    if not replacement and num_samples > logits.shape[-1]:
        raise OptionError(
            f"num_samples={num_samples} of {logits.shape[-1]} classes, each once, can't be drawn. Give replacement=True, or fewer."
        )


def _raise_unless(holds: Tensor, message: str) -> None:
    """Raise where the answer is at hand; on a device let it raise there, so that nothing waits."""
    if holds.device.type == "cpu":
        if not bool(holds):
            raise BatchError(message)
    else:
        torch._assert_async(holds, message)


def _divide_by_temperature(values: Tensor, temperature: float | Tensor, greedy: Tensor) -> Tensor:
    """Divide by the temperature, row by row; where it is 0 only the first of the largest stays possible."""
    divisor = torch.as_tensor(temperature, dtype=values.dtype, device=values.device)
    _raise_unless(
        (divisor.isfinite() & (divisor >= 0)).all(),
        "temperature must be finite and not negative; 0 takes the largest, 1 leaves the logits as they are.",
    )
    if divisor.ndim:
        if divisor.shape != values.shape[:-1]:
            raise BatchError(
                f"temperature has shape {tuple(divisor.shape)} and the rows of logits {tuple(values.shape[:-1])}; give one "
                "number, or one for each row."
            )
        divisor, greedy = divisor[..., None], greedy[..., None]
    # The largest becomes 0 first, so that a small temperature can't overflow.
    divided = (values - values.amax(-1, keepdim=True)) / torch.where(greedy, 1.0, divisor)
    largest = torch.zeros_like(values, dtype=torch.bool).scatter_(-1, values.argmax(-1, keepdim=True), True)
    return torch.where(greedy & ~largest, -torch.inf, divided)


def _filter_top_k_and_top_p(values: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    if top_k is None and top_p is None:
        return values
    ordered, order = values.sort(dim=-1, descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_k is not None:
        keep[..., top_k:] = False
    if top_p is not None:
        shares = ordered.masked_fill(~keep, -torch.inf).softmax(-1)
        before = shares.cumsum(-1) - shares
        keep &= before < top_p
        keep[..., 0] = True
    return values.masked_fill(~torch.zeros_like(keep).scatter(-1, order, keep), -torch.inf)
