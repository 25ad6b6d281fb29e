# SPDX-License-Identifier: Apache-2.0
"""Draw the lock of DataParallel and the ring of DDP: `python docs/make_parallel_figure.py` writes docs/figures/parallel.svg.

Lines and words take the page's text colour, so that they show in light and dark; one drawing stands above the other, for a phone.
"""

import math
from pathlib import Path

FIGURE = Path(__file__).parent / "figures" / "parallel.svg"
WIDTH, HEIGHT = 380, 492
COLOUR = "var(--color-brand-primary, #0a58ca)"
LEFT, STEP, BAR = 58, 50, 20  # of the time lines
RANKS, RADIUS, CENTRE = 4, 84, (190, 356)


def words(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400"
) -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}">{text}</text>'


def bar(x: float, y: float, width: float, *, filled: bool, dashed: bool = False) -> str:
    """Return a stretch of time: Python's, filled; a GPU's, in outline; of standing still, dashed."""
    fill = f'fill="{COLOUR}"' if filled else 'fill="none"'
    dash = ' stroke-dasharray="3 4" stroke-opacity="0.5"' if dashed else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{BAR}" rx="3" {fill} stroke="currentColor"{dash}/>'


def lock() -> list[str]:
    """Draw three GPUs that one process drives: its threads take turns."""
    drawn = [
        words(8, 20, "DataParallel: one process, one lock", weight="600"),
        *(words(8, 57 + 34 * gpu, f"GPU {gpu}") for gpu in range(3)),
    ]
    for gpu in range(3):
        y = 42 + 34 * gpu
        at = LEFT + STEP * gpu
        if gpu:
            drawn.append(bar(LEFT, y, STEP * gpu - 4, filled=False, dashed=True))
        drawn += [
            bar(at, y, STEP - 4, filled=True),
            bar(at + STEP, y, 92, filled=False),
        ]
    drawn.append(bar(LEFT + 3 * STEP + 96, 42, 62, filled=False))
    drawn += [
        words(LEFT + 3 * STEP + 127, 57, "loss", anchor="middle"),
        bar(LEFT, 152, 24, filled=True),
        words(LEFT + 31, 167, "Python"),
        bar(LEFT + 92, 152, 24, filled=False),
        words(LEFT + 123, 167, "GPU"),
        bar(LEFT + 166, 152, 24, filled=False, dashed=True),
        words(LEFT + 197, 167, "waits for lock"),
        words(8, 197, "All weights out, all outputs in: each step."),
    ]
    return drawn


def place(rank: float, radius: float = RADIUS) -> tuple[float, float]:
    """Return where on the ring a rank stands."""
    angle = 2 * math.pi * rank / RANKS - math.pi / 2
    return CENTRE[0] + radius * math.cos(angle), CENTRE[1] + radius * math.sin(angle)


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return an arrow along the ring."""
    (from_x, from_y), (to_x, to_y) = start, end
    return (
        f'<path d="M{from_x:.1f} {from_y:.1f}A{RADIUS} {RADIUS} 0 0 1 {to_x:.1f} {to_y:.1f}" fill="none" '
        f'stroke="{COLOUR}" stroke-width="2" marker-end="url(#parallel-arrow)"/>'
    )


def ring() -> list[str]:
    """Draw four ranks, each of which sends to the next one."""
    drawn = [words(8, 240, "DDP: a process for each GPU, a ring", weight="600")]
    for rank in range(RANKS):
        x, y = place(rank)
        drawn += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="18" fill="none" stroke="currentColor"/>',
            words(round(x, 1), round(y + 5, 1), str(rank), anchor="middle"),
            arrow(place(rank + 0.3), place(rank + 0.7)),
        ]
    return [
        *drawn,
        words(CENTRE[0], CENTRE[1] - 3, "1/4 each time,", anchor="middle"),
        words(CENTRE[0], CENTRE[1] + 15, "2 &#215; 3 times", anchor="middle"),
        words(8, 482, "Each has a Python of its own."),
    ]


def figure() -> str:
    """Return the whole figure."""
    drawn = "\n".join([*lock(), *ring()])
    return (
        f'<div><svg viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" role="img" font-size="15" '
        'fill="currentColor" style="width: 100%; max-width: 34rem; font-family: inherit">\n'
        "<title>DataParallel's threads take turns at one lock; DDP's processes send gradients around a ring</title>\n"
        '<defs><marker id="parallel-arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{COLOUR}"/></marker></defs>\n{drawn}\n</svg></div>\n'
    )


if __name__ == "__main__":
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(), encoding="utf-8")
