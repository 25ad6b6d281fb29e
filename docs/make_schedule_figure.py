# SPDX-License-Identifier: Apache-2.0
"""Draw the shapes of the learning-rate schedules: `python docs/make_schedule_figure.py` writes docs/figures/schedules.svg.

The lines are sampled from the schedules themselves, and take the page's text colour, so that they show in light and dark.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import truestep as ts

FIGURE = Path(__file__).parent / "figures" / "schedules.svg"
STEPS = 1000
PANELS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "warmup_cosine": lambda o: ts.warmup_cosine(o, warmup_steps=100, total_steps=STEPS),
    "warmup_linear": lambda o: ts.warmup_linear(o, warmup_steps=100, total_steps=STEPS),
    "warmup_constant": lambda o: ts.warmup_constant(o, warmup_steps=100),
    "warmup_inverse_sqrt": lambda o: ts.warmup_inverse_sqrt(o, warmup_steps=100),
    "one_cycle": lambda o: ts.one_cycle(o, total_steps=STEPS),
}
WIDTH, HEIGHT, GAP, ROW, COLUMNS = 200, 90, 20, 150, 3


def rates(schedule: Callable[[torch.optim.Optimizer], Any]) -> list[float]:
    """Return the learning rate of every update, as a share of its peak."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = schedule(optimizer)
    values = []
    for _ in range(STEPS):
        values.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return values


def panel(number: int, name: str, values: list[float]) -> str:
    """Return one little diagram: name, axes, line, and what the ends of the axes mean."""
    left, top = (number % COLUMNS) * (WIDTH + GAP) + 12, (number // COLUMNS) * ROW + 26
    points = " ".join(
        f"{left + WIDTH * step / STEPS:.1f},{top + HEIGHT * (1 - values[step]):.1f}"
        for step in [*range(0, STEPS, 10), STEPS - 1]
    )
    bottom = top + HEIGHT
    return "\n".join(
        [
            f'<text x="{left}" y="{top - 10}" font-weight="600">{name}</text>',
            f'<path d="M{left} {top}V{bottom}H{left + WIDTH}" fill="none" stroke="currentColor" stroke-opacity="0.35"/>',
            f'<polyline points="{points}" fill="none" stroke="var(--color-brand-primary, #0a58ca)" stroke-width="2"/>',
            f'<text x="{left}" y="{bottom + 16}" fill-opacity="0.75">0</text>',
            f'<text x="{left + WIDTH}" y="{bottom + 16}" fill-opacity="0.75" text-anchor="end">{STEPS} updates</text>',
        ]
    )


def figure() -> str:
    """Return the whole figure."""
    rows = -(-len(PANELS) // COLUMNS)
    size = f"0 0 {COLUMNS * (WIDTH + GAP) + 4} {rows * ROW}"
    drawn = "\n".join(
        panel(number, name, rates(schedule))
        for number, (name, schedule) in enumerate(PANELS.items())
    )
    return (
        f'<div style="overflow-x: auto"><svg viewBox="{size}" '
        'xmlns="http://www.w3.org/2000/svg" role="img" font-size="13" fill="currentColor" '
        'style="width: 100%; min-width: 36rem; font-family: inherit">\n'
        f"<title>Learning rate over 1,000 updates, 100 of them warm-up</title>\n{drawn}\n</svg></div>\n"
    )


if __name__ == "__main__":
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(), encoding="utf-8")
