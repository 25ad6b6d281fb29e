# SPDX-License-Identifier: Apache-2.0
"""A picture as text that other tools draw: Mermaid and Graphviz's DOT."""

import html
import json
from collections.abc import Callable, Iterator

from truestep.model.graph.picture import Border, Box, Picture

SHAPES = {
    "input": ('(["', '"])'),
    "output": ('(["', '"])'),
    "operation": ('("', '")'),
    "gradient": ('("', '")'),
}
DOT_SHAPES = {"input": "oval", "output": "oval", "parameter": "note"}


def mermaid_text_of_picture(picture: Picture) -> str:
    """Return the picture in Mermaid's language, which GitHub and many editors draw."""

    def mermaid_subgraph(frame: Border) -> str:
        return f'subgraph {frame.id}["{_escape_mermaid(frame.title)}"]'

    def mermaid_box(each: Box) -> str:
        left, right = SHAPES.get(each.kind, ('["', '"]'))
        return f"{each.id}{left}{'<br/>'.join(map(_escape_mermaid, each.lines))}{right}"

    arrows = (
        f"  {arrow.source} {'-.same weight.-' if arrow.is_weight else '-->'} {arrow.target}"
        for arrow in picture.arrows
    )
    return "\n".join(
        ["flowchart TB", *_nested_box_lines(picture, None, mermaid_box, mermaid_subgraph, "end"), *arrows, ""]
    )


def graphviz_text_of_picture(picture: Picture) -> str:
    """Return the picture in Graphviz's language."""

    def box_attributes(each: Box) -> str:
        return (
            f"shape={DOT_SHAPES.get(each.kind, 'box')} label={_quote_for_graphviz(chr(10).join(each.lines))}"
        )

    weight = 'style=dashed label="same weight"'
    return graphviz_text(
        picture, box_attributes, lambda frame: f"label={_quote_for_graphviz(frame.title)}", weight
    )


def graphviz_text(
    picture: Picture,
    box: Callable[[Box], str],
    frame: Callable[[Border], str],
    weight: str,
    settings: str = "",
) -> str:
    """Return the picture in Graphviz's language, with these attributes of a box, a frame, and the arrow of a shared weight."""

    def open_cluster(each: Border) -> str:
        return f"subgraph cluster_{each.id} {{ {frame(each)};"

    members = _nested_box_lines(picture, None, lambda each: f"{each.id} [{box(each)}];", open_cluster, "}")
    lines = [f"digraph {{{settings}", *members]
    for arrow in picture.arrows:
        look = f" [{weight} dir=none constraint=false]" if arrow.is_weight else ""
        lines.append(f"  {arrow.source} -> {arrow.target}{look};")
    return "\n".join([*lines, "}", ""])


def _nested_box_lines(
    picture: Picture, frame: str | None, box: Callable[[Box], str], opens: Callable[[Border], str], close: str
) -> Iterator[str]:
    for each in picture.boxes:
        if each.frame == frame:
            yield f"  {box(each)}"
    for inner in picture.frames:
        if inner.frame == frame:
            yield f"  {opens(inner)}"
            yield from (f"  {line}" for line in _nested_box_lines(picture, inner.id, box, opens, close))
            yield f"  {close}"


def _escape_mermaid(text: str) -> str:
    return html.escape(text, quote=False).replace('"', "&quot;").replace("#", "&#35;")


def _quote_for_graphviz(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
