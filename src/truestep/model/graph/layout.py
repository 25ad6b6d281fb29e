# SPDX-License-Identifier: Apache-2.0
"""Where everything of a picture lies: by Graphviz, which the extra `[graph]` brings.

Graphviz is given sizes and no words, so that it neither needs fonts nor speaks of them; the drawing knows its own letters.
"""

from dataclasses import dataclass
from typing import Any

from truestep.core.extras import needs_extra
from truestep.model.graph.picture import Border, Box, Picture

POINTS = 72.0  # Graphviz measures boxes in inches
LETTER, BOLD, LINE = 7.3, 8.3, 17.0  # of 12 pixels, on the generous side: fonts differ
PADDING_X, PADDING_Y = 11.0, 7.0
TITLE_HEIGHT = 20.0
STACKED = 4.0  # by so much the second sheet of a stacked box is to be seen
MAX_LETTERS = 44


@dataclass(frozen=True, kw_only=True)
class PictureRectangle:
    """A rectangle in pixels, from the drawing's upper left corner."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, kw_only=True)
class PictureLayout:
    """Where the boxes and frames of a picture are, and along which points its arrows go."""

    width: float
    height: float
    boxes: dict[str, PictureRectangle]
    frames: dict[str, PictureRectangle]
    arrows: tuple[
        tuple[tuple[float, float], ...], ...
    ]  # cubic Bézier splines; the last point is the arrow's tip


def picture_text(text: str) -> str:
    """Return a line as it fits into a box."""
    return text if len(text) <= MAX_LETTERS else text[: MAX_LETTERS - 1] + "…"


def lay_out_picture(picture: Picture) -> PictureLayout:
    """Ask Graphviz's `dot`; raises a MissingPackageError where pygraphviz is not installed."""
    with needs_extra("graph", "pygraphviz"):
        import pygraphviz

    graph = pygraphviz.AGraph(string=_without_labels(picture))
    try:
        graph.layout(prog="dot")
        left, bottom, right, top = _numbers(graph.graph_attr["bb"])
        frames = {
            cluster.name.removeprefix("cluster_"): _rectangle(cluster.graph_attr["bb"], left, top)
            for cluster in _clusters(graph)
        }
        boxes = {box.id: _around(graph.get_node(box.id).attr, left, top) for box in picture.boxes}
        arrows = tuple(
            _spline(graph.get_edge(arrow.source, arrow.target, key=str(number)).attr["pos"], left, top)
            for number, arrow in enumerate(picture.arrows)
        )
    finally:
        graph.close()
    return PictureLayout(width=right - left, height=top - bottom, boxes=boxes, frames=frames, arrows=arrows)


def _without_labels(picture: Picture) -> str:
    lines = [
        "digraph {",
        "graph [nodesep=0.3 ranksep=0.35 margin=0 pad=0 splines=spline];",
        'node [shape=box fixedsize=true label=""];',
    ]
    lines += _members(picture, None)
    for number, arrow in enumerate(picture.arrows):
        loose = " constraint=false" if arrow.is_weight else ""
        lines.append(f"{arrow.source} -> {arrow.target} [key={number}{loose}];")
    return "\n".join([*lines, "}"])


def _members(picture: Picture, frame: str | None) -> list[str]:
    lines = []
    for box in picture.boxes:
        if box.frame == frame:
            width, height = box_size(box)
            lines.append(f"{box.id} [width={width / POINTS:.4f} height={height / POINTS:.4f}];")
    for inner in picture.frames:
        if inner.frame == frame:
            lines.append(f"subgraph cluster_{inner.id} {{ margin=10; labeljust=l; label=<{_room(inner)}>;")
            lines += [*_members(picture, inner.id), "}"]
    return lines


def _room(frame: Border) -> str:
    """Return an empty table of the size of a frame's title."""
    width = round(BOLD * len(picture_text(frame.title)))
    cell = f'<TD FIXEDSIZE="TRUE" WIDTH="{width}" HEIGHT="{TITLE_HEIGHT:.0f}"></TD>'
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLPADDING="0" CELLSPACING="0"><TR>{cell}</TR></TABLE>'


def box_size(box: Box) -> tuple[float, float]:
    """Return width and height that the words of a box take."""
    stacked = STACKED if box.times > 1 else 0.0
    name, *others = (len(picture_text(line)) for line in box.lines)
    longest = max(BOLD * name, LETTER * max(others, default=0))
    return longest + 2 * PADDING_X + stacked, LINE * len(box.lines) + 2 * PADDING_Y + stacked


def _clusters(graph: Any) -> list[Any]:
    found = []
    for each in graph.subgraphs():
        found += [each, *_clusters(each)]
    return found


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.replace(",", " ").split()]


def _rectangle(text: str, left: float, top: float) -> PictureRectangle:
    x, y, right, upper = _numbers(text)
    return PictureRectangle(left=x - left, top=top - upper, width=right - x, height=upper - y)


def _around(attributes: "dict[str, str]", left: float, top: float) -> PictureRectangle:
    x, y = _numbers(attributes["pos"])
    width, height = POINTS * float(attributes["width"]), POINTS * float(attributes["height"])
    return PictureRectangle(left=x - left - width / 2, top=top - y - height / 2, width=width, height=height)


def _spline(text: str, left: float, top: float) -> tuple[tuple[float, float], ...]:
    points, tip = [], None
    for part in text.replace("\\\n", "").split():
        end, _, rest = part.rpartition("e,")
        x, y = _numbers(rest.removeprefix("s,"))
        point = (x - left, top - y)
        if part.startswith("e,") and not end:
            tip = point
        elif not part.startswith("s,"):
            points.append(point)
    return (*points, *([tip] if tip else []))
