# SPDX-License-Identifier: Apache-2.0
"""What one depth of a graph shows: boxes, the frames around them, and arrows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from truestep.core.text_formatting import bytes_text, short_number
from truestep.model.graph.graph_nodes import (
    GraphNode,
    ModuleCall,
    TracedGraph,
    module_calls_in,
    nodes_of_member,
)

MAX_SHAPES = 3


@dataclass(frozen=True, kw_only=True)
class Box:
    """A module that is not taken apart here, an operation, or a step of autograd."""

    id: str
    kind: str  # "module", or that of its node
    lines: tuple[str, ...]  # its name first
    frame: str | None  # the innermost one that it stands in
    times: int


@dataclass(frozen=True, kw_only=True)
class Border:
    """A module that is taken apart here, or a unit that repeats."""

    id: str
    title: str
    frame: str | None  # the one that it stands in
    times: int


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """What one box gives another; `is_weight`: the two hold the same weight."""

    source: str
    target: str
    is_weight: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A graph folded to one depth."""

    depth: int
    boxes: tuple[Box, ...]
    frames: tuple[Border, ...]
    arrows: tuple[Arrow, ...]


@dataclass
class _DrawnShapes:
    boxes: list[Box] = field(default_factory=list)
    frames: list[Border] = field(default_factory=list)
    shown_in: dict[GraphNode, str] = field(default_factory=dict)


def pictures_at_all_depths(graph: TracedGraph) -> tuple[Picture, ...]:
    """Return the graph at every depth, from the model's own parts to all there is."""
    depth = max(1, *(level for _, level in _modules_with_levels(graph.root, 0)))
    return tuple(picture_at_depth(graph, each) for each in range(1, depth + 1))


def _modules_with_levels(group: ModuleCall, level: int) -> Iterator[tuple[ModuleCall, int]]:
    inside = level + 1 if group.module is not None else level
    yield group, 0 if group.is_closed else inside
    for child in group.children:
        if isinstance(child, ModuleCall) and child.children:
            yield from _modules_with_levels(child, inside)


def picture_at_depth(graph: TracedGraph, depth: int) -> Picture:
    """Return the graph with modules taken apart down to a depth."""
    drawn = _DrawnShapes()
    _draw_members(graph.root.children, drawn, depth - 1, frame=None, above="")
    arrows = {
        (drawn.shown_in[source], drawn.shown_in[target])
        for source, target in graph.edges
        if source in drawn.shown_in and target in drawn.shown_in
    }
    order = {box.id: place for place, box in enumerate(drawn.boxes)}
    between = sorted(((a, b) for a, b in arrows if a != b), key=lambda ends: (order[ends[0]], order[ends[1]]))
    return Picture(
        depth=depth,
        boxes=tuple(drawn.boxes),
        frames=tuple(drawn.frames),
        arrows=(
            *(Arrow(source=a, target=b) for a, b in between),
            *_shared_weight_arrows(graph.root, drawn.shown_in),
        ),
    )


def _draw_members(
    members: "list[GraphNode | ModuleCall]",
    drawn: _DrawnShapes,
    levels: int,
    *,
    frame: str | None,
    above: str,
) -> None:
    for member in members:
        number = len(drawn.boxes) + len(drawn.frames)
        if isinstance(member, ModuleCall) and (
            member.module is None or (levels > 0 and member.children and not member.is_closed)
        ):
            name = f"frame{number}"
            drawn.frames.append(
                Border(id=name, title=_group_title(member, above), frame=frame, times=member.times)
            )
            inside = levels if member.module is None else levels - 1
            _draw_members(member.children, drawn, inside, frame=name, above=member.name or above)
            continue
        nodes = list(nodes_of_member(member))
        if isinstance(member, ModuleCall) and not nodes:
            continue  # it gave back what it got
        box = _make_box(member, f"box{number}", frame, above)
        drawn.boxes.append(box)
        drawn.shown_in |= dict.fromkeys(nodes, box.id)


def _make_box(member: GraphNode | ModuleCall, name: str, frame: str | None, above: str) -> Box:
    if isinstance(member, GraphNode):
        title = _relative_module_name(member.name, above) if member.kind == "parameter" else member.name
        lines = (title, *_shape_lines(member.shapes), *member.details)
        return Box(id=name, kind=member.kind, lines=lines, frame=frame, times=1)
    saved = sum(node.saved_bytes for node in nodes_of_member(member))
    kept = (f"saves {bytes_text(saved)}",) if saved else ()
    lines = (_group_title(member, above), *_shape_lines(member.shapes), *kept)
    return Box(id=name, kind="module", lines=lines, frame=frame, times=member.times)


def _group_title(group: ModuleCall, above: str) -> str:
    if group.module is None:
        return f"× {group.times}"
    name = _relative_module_name(group.name, above)
    if group.times > 1:
        name += f" … {_relative_module_name(group.last_name, above)}"
    count = sum(parameter.numel() for parameter in group.module.parameters())
    words = [f"{name} {group.type}"]
    if count:
        words.append(short_number(count))
    if group.times > 1:
        words.append(f"× {group.times}")
    if group.num_calls > 1:
        words.append(f"called {group.num_calls} times")
    return ", ".join(words)


def _relative_module_name(name: str, above: str) -> str:
    return name.removeprefix(f"{above}.") if above else name


def _shape_lines(shapes: Any) -> tuple[str, ...]:
    """Return one line for each tensor; of many, the first ones."""
    several = [shapes] if isinstance(shapes, tuple) else list(shapes)
    lines = [" × ".join(map(str, shape)) or "scalar" for shape in several]
    more = [f"and {len(lines) - MAX_SHAPES} more"] if len(lines) > MAX_SHAPES else []
    return (*lines[:MAX_SHAPES], *more)


def _shared_weight_arrows(root: ModuleCall, shown_in: dict[GraphNode, str]) -> Iterator[Arrow]:
    """Yield an arrow between boxes whose modules hold one tensor under two names."""
    owners: dict[Tensor, str] = {}
    found = set()
    for group in module_calls_in(root):
        boxes = {shown_in[node] for node in nodes_of_member(group) if node in shown_in}
        if group.module is None or len(boxes) != 1:
            continue
        box = boxes.pop()
        for parameter in group.module.parameters(recurse=False):
            owner = owners.setdefault(parameter, box)
            if owner != box:
                found.add((owner, box))
    for source, target in sorted(found):
        yield Arrow(source=source, target=target, is_weight=True)
