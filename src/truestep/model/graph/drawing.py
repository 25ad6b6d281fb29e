# SPDX-License-Identifier: Apache-2.0
"""A picture as SVG, in the colours of charts, light and dark: shapes by Graphviz, which the extra `[graph]` brings, words by us.

Graphviz is given sizes and no words, so that it neither needs fonts nor speaks of them; the drawing knows its own letters.
"""

import re
from importlib import resources

from truestep.core.charts import chart_css
from truestep.core.charts.markup import Html, html_tag, join_html
from truestep.core.errors import explain_missing_extra
from truestep.model.graph.mermaid_and_dot import graphviz_text
from truestep.model.graph.picture import Border, Box, Picture

POINTS = 72.0  # Graphviz measures boxes in inches
LETTER, BOLD, LINE = 7.3, 8.3, 17.0  # of 12 pixels, on the generous side: fonts differ
PADDING_X, PADDING_Y = 11.0, 7.0
TITLE_HEIGHT = 20.0
MAX_LETTERS = 44
SETTINGS = """
  graph [nodesep=0.3 ranksep=0.35 margin=0 pad=0.11 bgcolor=transparent];
  node [shape=box style=rounded fixedsize=true label=""];
  edge [arrowsize=0.8];"""
# what Graphviz writes for a box or a frame: its name, and the points of its shape (of a box that is drawn twice the inner one)
_SHAPE = re.compile(
    r'<title>(?:cluster_)?(?P<id>\w+)</title>\n(?P<shape><[^>]*(?:d|points)="(?P<points>[^"]*)".*?)</g>',
    re.DOTALL,
)
_POINT = re.compile(r"(-?[\d.]+),(-?[\d.]+)")
_SIZE = re.compile(r'viewBox="0\.00 0\.00 (?P<width>[\d.]+) (?P<height>[\d.]+)"')
_LEFT_OUT = re.compile(r'<!--.*?-->\n| id="[^"]*"')  # ids would be there twice in a page of several drawings
_TITLE = re.compile(r"<title>[^<]*</title>\n")


def read_graph_asset(name: str) -> str:
    """Return a style sheet or a script that lies here."""
    return resources.files("truestep.model.graph").joinpath(name).read_text("utf-8")


def picture_svg_element(picture: Picture) -> Html:
    """Return an SVG element that a page with charts' and this file's style shows; needs the extra `[graph]`."""
    drawn = _LEFT_OUT.sub("", graphviz_svg(picture))
    size = _SIZE.search(drawn)
    assert size is not None
    boxes = {each.id: each for each in picture.boxes}
    written = _SHAPE.sub(lambda shape: _add_box_text(shape, boxes.get(shape["id"])), drawn)
    inner = Html(_TITLE.sub("", written[written.index("<g ") : written.rindex("</g>")]))
    corners = {shape["id"]: _upper_left_corner(shape) for shape in _SHAPE.finditer(drawn)}
    titles = [_frame_title_element(each, corners[each.id]) for each in picture.frames]
    title = html_tag("title", f"{len(picture.boxes)} boxes at depth {picture.depth}")
    width, height = (round(float(size[name])) for name in ("width", "height"))
    sizes: dict[str, str | float] = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    # Titles above the arrows.
    return html_tag("svg", title, inner, *titles, Html("</g>"), class_="graph", role="img", **sizes)


def graphviz_svg(picture: Picture) -> str:
    """Return Graphviz's SVG of the boxes, frames and arrows; a MissingPackageError where pygraphviz is not installed."""
    with explain_missing_extra("graph", "pygraphviz"):
        import pygraphviz

    graph = pygraphviz.AGraph(
        string=graphviz_text(
            picture, _box_size_attributes, _title_space_attributes, 'class="weight"', SETTINGS
        )
    )
    try:
        svg: bytes = graph.draw(format="svg", prog="dot")
    finally:
        graph.close()
    return svg.decode()


def picture_svg_document(picture: Picture) -> str:
    """Return a file of its own."""
    svg = picture_svg_element(picture)
    style = html_tag(
        "style", Html(chart_css() + read_graph_asset("graph.css") + "svg { background: var(--card); }")
    )
    start = svg.index(">") + 1
    head = svg[:start].replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{head}{style}{svg[start:]}"


def box_size(box: Box) -> tuple[float, float]:
    """Return width and height that the words of a box take."""
    name, *others = (len(_shorten_line_for_box(line)) for line in box.lines)
    longest = max(BOLD * name, LETTER * max(others, default=0))
    return longest + 2 * PADDING_X, LINE * len(box.lines) + 2 * PADDING_Y


def _box_size_attributes(box: Box) -> str:
    width, height = box_size(box)
    edges = 2 if box.times > 1 else 1
    size = f"width={width / POINTS:.4f} height={height / POINTS:.4f}"
    return f"class={box.kind} {size} peripheries={edges}"


def _title_space_attributes(frame: Border) -> str:
    """Return a frame's attributes, with an empty table of the size of its title."""
    width = round(BOLD * len(_shorten_line_for_box(frame.title)))
    cell = f'<TD FIXEDSIZE="TRUE" WIDTH="{width}" HEIGHT="{TITLE_HEIGHT:.0f}"></TD>'
    table = f'<TABLE BORDER="0" CELLBORDER="0" CELLPADDING="0" CELLSPACING="0"><TR>{cell}</TR></TABLE>'
    kind = "frame many" if frame.times > 1 else "frame"
    return f'class="{kind}" style=rounded margin=10 labeljust=l label=<{table}>'


def _shorten_line_for_box(text: str) -> str:
    """Return a line as it fits into a box."""
    return text if len(text) <= MAX_LETTERS else text[: MAX_LETTERS - 1] + "…"


def _upper_left_corner(shape: re.Match[str]) -> tuple[float, float]:
    """Return the upper left corner of a box or a frame."""
    points = [(float(x), float(y)) for x, y in _POINT.findall(shape["points"])]
    left, top = (min(along) for along in zip(*points, strict=True))
    return left, top


def _add_box_text(shape: re.Match[str], box: Box | None) -> str:
    """Return what Graphviz wrote for a box with its words; what it wrote for a frame as it is."""
    if box is None:
        return shape[0]
    left, top = _upper_left_corner(shape)
    words = [
        _text_element(
            line, left + PADDING_X, top + PADDING_Y + 12.5 + LINE * number, None if number else "name"
        )
        for number, line in enumerate(box.lines)
    ]
    if any(_shorten_line_for_box(line) != line for line in box.lines):
        words.append(html_tag("title", "\n".join(box.lines)))
    return join_html(Html(shape["shape"]), *words, Html("</g>"))


def _frame_title_element(frame: Border, corner: tuple[float, float]) -> Html:
    return _text_element(frame.title, corner[0] + 10, corner[1] + 17, "name title")


def _text_element(line: str, x: float, y: float, kind: str | None) -> Html:
    return html_tag("text", _shorten_line_for_box(line), x=round(x, 1), y=round(y, 1), class_=kind)
