# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a layer, judged by several looks, in words that say what to try and what does not help."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

LOOKS = 8
HELD = 5  # of them; of a dead layer all
DEAD, SATURATED = 0.9, 0.9
FAR = 1e4  # between gradients of two layers, or of one layer and its own past
HUGE = 1e6  # values that no layer of a healthy network gives

TRY = {
    "dead": "Try LeakyReLU or another activation that is never flat, a lower learning rate, and biases that begin at 0; SELU needs "
    "lecun_normal weights and AlphaDropout. New initial weights revive it.",
    "saturated": "Try normalisation before it, smaller initial weights, a lower learning rate, or ReLU-like activations.",
    "exploding": "Try a lower learning rate, a warm-up, clip=ts.ClipNorm(1.0), normalisation, or a fitting initialisation.",
    "vanishing": "Try ReLU-like activations, residual connections, normalisation, or a fitting initialisation.",
}
IN_VAIN = "More data of the same kind, dropout, more layers and more epochs do not help."


@dataclass(frozen=True, kw_only=True)
class LayerFinding:
    """A layer that does not learn, or spoils what the others learn."""

    layer: str
    fault: str  # "dead", "saturated", "exploding", "vanishing"
    step: int
    message: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class LayerLook:
    """One layer in one look; None for what it has not."""

    name: str
    kind: str
    type: str
    mean: float
    spread: float
    largest: float
    zero: float
    saturated: float
    dead: float  # the share of its units that were 0 in each of the last looks
    output_gradient: float | None  # root mean squares
    gradient: float | None
    weight: float | None
    update: float | None
    counts: tuple[float, ...]  # in bins from 4 spreads below the mean to 4 above
    # of the weight's, from 4 root mean squares below 0 to 4 above; where wanted
    gradient_counts: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Look:
    """All layers at one step, in the order of the forward."""

    step: int
    layers: tuple[LayerLook, ...]


def layer_findings_of_looks(looks: Sequence[Look], span: int) -> list[LayerFinding]:
    """Return what the last looks have in common; `span`: how many updates they stand for."""
    recent = looks[-LOOKS:]
    if len(recent) < LOOKS:
        return []
    found: Counter[tuple[str, str]] = Counter()
    details: dict[tuple[str, str], str] = {}
    past = _usual_gradient_sizes(looks[:-LOOKS])
    for look in recent:
        for layer, fault, words in _layer_faults(look, past):
            found[layer, fault] += 1
            details[layer, fault] = words
    now_dead = {layer.name for layer in recent[-1].layers if _is_dead_relu(layer)}  # in all of these looks
    return [
        LayerFinding(
            layer=layer,
            fault=fault,
            step=recent[-1].step,
            message=f"{layer}: {details[layer, fault]} in {_looks_phrase(times, fault)} batches looked at among the last {span}",
            advice=f"{TRY[fault]} {IN_VAIN}",
        )
        for (layer, fault), times in found.items()
        if (layer in now_dead if fault == "dead" else times >= HELD)
    ]


def _looks_phrase(times: int, fault: str) -> str:
    return f"each of the {LOOKS}" if fault == "dead" or times == LOOKS else f"{times} of the {LOOKS}"


def _is_dead_relu(layer: LayerLook) -> bool:
    return layer.kind == "relu" and layer.dead >= DEAD


def _usual_gradient_sizes(looks: Sequence[Look]) -> dict[str, float]:
    """Return what a layer's gradient usually was."""
    sizes: dict[str, list[float]] = {}
    for look in looks[-64:]:
        for layer in look.layers:
            if layer.gradient and math.isfinite(layer.gradient):
                sizes.setdefault(layer.name, []).append(layer.gradient)
    return {name: median(values) for name, values in sizes.items() if len(values) >= LOOKS}


def _layer_faults(look: Look, past: dict[str, float]) -> Iterator[tuple[str, str, str]]:
    for place, layer in enumerate(look.layers):
        is_last = place == len(look.layers) - 1
        if _is_dead_relu(layer):
            yield layer.name, "dead", f"{layer.dead:.0%} of its units were zero"
        elif layer.kind in ("tanh", "sigmoid") and layer.saturated >= SATURATED and not is_last:
            yield layer.name, "saturated", f"{layer.saturated:.0%} of what it gave was at the flat ends"
    yield from _gradient_flow_faults(look, past)


def _gradient_flow_faults(look: Look, past: dict[str, float]) -> Iterator[tuple[str, str, str]]:
    trained = [layer for layer in look.layers if layer.gradient is not None]
    for place, layer in enumerate(trained):
        gradient = layer.gradient or 0.0
        later = [each.gradient or 0.0 for each in trained[place + 1 :]]
        fault = "exploding"
        if not all(map(math.isfinite, (layer.largest, gradient))) or layer.largest >= HUGE:
            words = f"its values reached {layer.largest:.2g}, its gradient {gradient:.2g}"
        elif later and gradient > FAR * max(later) > 0:
            words = f"its gradient was {gradient / max(later):.1g} times that of every later layer"
        elif layer.name in past and gradient > FAR * past[layer.name]:
            words = f"its gradient was {gradient / past[layer.name]:.1g} times what it used to be"
        elif later and max(later) > FAR * gradient and math.isfinite(max(later)):
            share = f"{gradient / max(later):.1g} times that of a later layer" if gradient else "zero"
            fault, words = "vanishing", f"its gradient was {share}"
        else:
            continue
        yield layer.name, fault, words


def layer_numbers_for_json(layer: LayerLook) -> dict[str, Any]:
    """Return a layer's numbers as JSON takes them, five digits each."""
    return {
        key: [round(each) for each in value] if key == "counts" else _round_to_5_digits(value)
        for key, value in vars(layer).items()
        if key not in ("name", "gradient_counts")
    }


def _round_to_5_digits(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if math.isfinite(value) else None
