# SPDX-License-Identifier: Apache-2.0
"""The layers of a run over its steps: heat maps, and which of them do not learn."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from truestep.core.atomic_files import read_regular_file
from truestep.core.charts.heat import HeatMap, draw_heat_map
from truestep.core.charts.markup import Html, html_tag

LAYERS = "layers.jsonl"
MAPS = (  # title, which number of a layer, for which kinds, whether orders of magnitude are shown
    ("Dead units (share)", "dead", ("relu",), False),
    ("Saturated units (share)", "saturated", ("tanh", "sigmoid"), False),
    ("Activation std", "spread", None, True),
    ("Weight gradient (RMS)", "gradient", None, True),
    ("Activation gradient (RMS)", "output_gradient", None, True),
    ("Update-to-weight ratio", "ratio", None, True),
)


def read_reported_looks(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a `layers.jsonl` that can be read."""
    try:
        lines = read_regular_file(path).splitlines()
    except OSError:
        return
    for raw in lines:
        try:
            line = json.loads(raw)
            layers, findings = line["layers"], line.get("findings", [])
            if (
                isinstance(line["step"], int)
                and all(isinstance(layer, dict) for layer in layers.values())
                and isinstance(findings, list)
            ):
                yield {**line, "findings": findings}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def report_layers_section(looks: Sequence[dict[str, Any]]) -> Iterator[Html]:
    """Yield heat maps, of each learner by itself; what was found stands at the top of the page."""
    if not any(look["findings"] for look in looks):
        words = "No layer was dead, saturated, exploding or vanishing in the batches looked at."
        yield html_tag("p", words, class_="card wide")
    for learner in dict.fromkeys(str(look.get("learner")) for look in looks):
        own = [look for look in looks if str(look.get("learner")) == learner]
        for title, key, kinds, is_log in MAPS:
            chart = _layer_heat_map(title, own, key, kinds, is_log=is_log)
            if chart is not None:
                yield draw_heat_map(chart)


def _layer_heat_map(
    title: str, looks: Sequence[dict[str, Any]], key: str, kinds: tuple[str, ...] | None, *, is_log: bool
) -> HeatMap | None:
    names = dict.fromkeys(
        name
        for look in looks
        for name, layer in look["layers"].items()
        if (kinds is None or layer.get("kind") in kinds) and _layer_value_to_plot(layer, key) is not None
    )
    rows = [[_layer_value_to_plot(look["layers"].get(name, {}), key) for look in looks] for name in names]
    if not names:
        return None
    return HeatMap(
        title=title, names=list(names), steps=[look["step"] for look in looks], rows=rows, is_log=is_log
    )


def _layer_value_to_plot(layer: dict[str, Any], key: str) -> float | None:
    value: Any = layer.get(key)
    if key == "ratio":
        update, weight = layer.get("update"), layer.get("weight")
        value = update / weight if _is_number(update) and _is_number(weight) and weight else None
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
