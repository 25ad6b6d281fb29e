# SPDX-License-Identifier: Apache-2.0
"""A picture as SVG, in the colours of charts, light and dark."""

from dataclasses import replace
from importlib import resources

from truestep.core.charts import chart_style
from truestep.core.charts.markup import Html, html_tag
from truestep.model.graph.layout import (
    LINE,
    PADDING_X,
    PADDING_Y,
    STACKED,
    PictureLayout,
    PictureRectangle,
    lay_out_picture,
    picture_text,
)
from truestep.model.graph.picture import Border, Box, Picture

MARGIN = 8.0
HEAD, HALF_HEAD = 8.0, 3.5  # pixels of an arrow's head


def graph_asset(name: str) -> str:
    """Return a style sheet or a script that lies here."""
    return resources.files("truestep.model.graph").joinpath(name).read_text("utf-8")


def svg_of(picture: Picture) -> Html:
    """Return an SVG element that a page with charts' and this file's style shows; needs the extra `[graph]`."""
    return draw_picture(picture, lay_out_picture(picture))


def draw_picture(picture: Picture, layout: PictureLayout) -> Html:
    """Return the picture drawn where the layout says."""
    width, height = round(layout.width + 2 * MARGIN), round(layout.height + 2 * MARGIN)
    framed = [(frame, layout.frames[frame.id]) for frame in picture.frames if frame.id in layout.frames]
    parts = [
        _rectangle(place, radius=9, class_="frame many" if frame.times > 1 else "frame")
        for frame, place in framed
    ]
    for arrow, points in zip(picture.arrows, layout.arrows, strict=True):
        parts += _arrow(points, is_weight=arrow.is_weight)
    parts += [_frame_title(frame, place) for frame, place in framed]  # above the arrows
    parts += [_box(box, layout.boxes[box.id]) for box in picture.boxes]
    moved = html_tag("g", *parts, transform=f"translate({MARGIN:g} {MARGIN:g})")
    title = html_tag("title", f"{len(picture.boxes)} boxes at depth {picture.depth}")
    sizes: dict[str, str | float] = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    return html_tag("svg", title, moved, class_="graph", role="img", **sizes)


def picture_svg_document(picture: Picture) -> str:
    """Return a file of its own."""
    svg = svg_of(picture)
    style = html_tag(
        "style", Html(chart_style() + graph_asset("graph.css") + "svg { background: var(--card); }")
    )
    start = svg.index(">") + 1
    head = svg[:start].replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{head}{style}{svg[start:]}"


def _frame_title(frame: Border, place: PictureRectangle) -> Html:
    x, y = _round(place.left + 10), _round(place.top + 17)
    return html_tag("text", picture_text(frame.title), x=x, y=y, class_="name title")


def _box(box: Box, place: PictureRectangle) -> Html:
    parts = []
    stacked = STACKED if box.times > 1 else 0.0
    front = replace(
        place, top=place.top + stacked, width=place.width - stacked, height=place.height - stacked
    )
    if stacked:
        parts.append(_rectangle(replace(front, left=front.left + stacked, top=place.top), radius=6))
    parts.append(_rectangle(front, radius=15 if box.kind in ("input", "output") else 6))
    for number, line in enumerate(box.lines):
        x, y = front.left + PADDING_X, front.top + PADDING_Y + LINE * number + 12.5
        kind = None if number else "name"
        parts.append(html_tag("text", picture_text(line), x=_round(x), y=_round(y), class_=kind))
    is_cut = any(picture_text(line) != line for line in box.lines)
    whole = html_tag("title", "\n".join(box.lines)) if is_cut else None
    return html_tag("g", whole, *parts, class_=box.kind)


def _rectangle(place: PictureRectangle, *, radius: float, class_: str | None = None) -> Html:
    return html_tag(
        "rect",
        x=_round(place.left),
        y=_round(place.top),
        width=_round(place.width),
        height=_round(place.height),
        rx=radius,
        class_=class_,
    )


def _arrow(points: tuple[tuple[float, float], ...], *, is_weight: bool) -> list[Html]:
    start, *rest = points
    *curve, tip = rest
    x, y = start
    bends = " ".join(f"{_round(x)},{_round(y)}" for x, y in curve)
    path = html_tag("path", d=f"M{_round(x)},{_round(y)}C{bends}", class_="weight" if is_weight else None)
    if is_weight:
        return [path]
    back = (curve[-1][0] - tip[0], curve[-1][1] - tip[1])
    length = max((back[0] ** 2 + back[1] ** 2) ** 0.5, 1e-6)
    across, along = HALF_HEAD / length, HEAD / length
    left = (tip[0] + along * back[0] - across * back[1], tip[1] + along * back[1] + across * back[0])
    right = (tip[0] + along * back[0] + across * back[1], tip[1] + along * back[1] - across * back[0])
    corners = "L".join(f"{_round(x)},{_round(y)}" for x, y in (tip, left, right))
    return [path, html_tag("path", d=f"M{corners}Z", class_="head")]


def _round(value: float) -> float:
    return round(value, 1)
