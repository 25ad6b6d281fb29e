# SPDX-License-Identifier: Apache-2.0
"""The graph's page: every depth of both graphs as a drawing, one of which is shown and can be zoomed."""

from typing import TYPE_CHECKING

from truestep.core.charts.document import html_document, html_header
from truestep.core.charts.markup import Html, html_tag
from truestep.core.text_formatting import bytes_text
from truestep.model.graph.drawing import picture_svg_element, read_graph_asset
from truestep.model.graph.picture import Picture

if TYPE_CHECKING:
    from truestep.model.graph.graph import ModelGraph

MAX_DRAWN = 400  # boxes; Graphviz takes minutes for thousands, and nobody reads them
KINDS = {"modules": "Modules and operations", "autograd": "Autograd"}


def graph_page(graph: "ModelGraph") -> str:
    """Return the page; needs the extra `[graph]`."""
    sections = [
        _graph_section(kind, title, pictures, graph.picture(kind=kind))  # type: ignore[arg-type]
        for kind, title in KINDS.items()
        if (pictures := getattr(graph, kind))
    ]
    kept = f"the forward keeps {bytes_text(graph.saved_bytes)} for the backward" if graph.saved_bytes else ""
    notes = [html_tag("p", note, class_="note") for note in (*graph.notes, HOW_TO_READ)]
    body = html_tag("main", html_header("Truestep graph", graph.model, kept), *sections, *notes)
    style = read_graph_asset("graph.css") + read_graph_asset("page.css")
    title = f"{graph.model} · Truestep graph"
    return html_document(title, body, style=style, script=read_graph_asset("page.js"))


HOW_TO_READ = (
    "A solid frame or a box with a double edge stands for several that are alike. Dashed lines without a head join layers that "
    "hold the same weight. Sizes are those of what a box gives."
)


def _graph_section(kind: str, title: str, pictures: tuple[Picture, ...], first: Picture) -> Html:
    drawn = [picture for picture in pictures if len(picture.boxes) <= MAX_DRAWN] or [first]
    views = [
        html_tag(
            "div",
            picture_svg_element(each),
            class_="view",
            data_depth=each.depth,
            hidden=None if each is first else "",
        )
        for each in drawn
    ]
    left_out = len(pictures) - len(drawn)
    note = f"Not drawn: {left_out} deeper pictures, of more than {MAX_DRAWN} boxes." if left_out else None
    told = html_tag("p", note, class_="note") if note else None
    card = html_tag("div", _depth_buttons(drawn, first), *views, told, class_="card")
    return html_tag("section", html_tag("h2", title), card, class_="graphs", id=kind)


def _depth_buttons(drawn: list[Picture], first: Picture) -> Html:
    depths = [
        html_tag(
            "button",
            f"depth {picture.depth}: {len(picture.boxes)}",
            type="button",
            data_depth=picture.depth,
            aria_pressed="true" if picture is first else "false",
        )
        for picture in drawn
    ]
    zoom = [
        html_tag("button", word, type="button", data_zoom=factor, aria_label=label)
        for word, factor, label in (
            ("−", 0.8, "smaller"),
            ("+", 1.25, "larger"),
            ("whole", 0, "the whole graph"),
        )
    ]
    return html_tag("div", html_tag("span", *depths), html_tag("span", *zoom), class_="bar")
