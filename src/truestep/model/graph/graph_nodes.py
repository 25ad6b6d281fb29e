# SPDX-License-Identifier: Apache-2.0
"""What a traced graph is made of: nodes within groups within groups, and edges between nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

Kind = Literal["input", "output", "operation", "gradient", "parameter"]


@dataclass(eq=False)
class GraphNode:
    """One operation, or one step of autograd."""

    name: str
    kind: Kind
    shapes: Any
    details: tuple[str, ...] = ()
    saved_bytes: int = 0


@dataclass(eq=False)
class ModuleCall:
    """One call of a module, or (without a module) what is repeated as a unit."""

    name: str  # as the model knows it: "encoder.layers.0"
    module: nn.Module | None
    children: "list[GraphNode | ModuleCall]" = field(default_factory=list)
    shapes: Any = ()
    times: int = 1  # how often it stands one after another (or side by side), rolled up
    last_name: str = ""  # of the last of them
    num_calls: int = 1  # of one shared module, in different places
    is_closed: bool = False  # a layer of torch's own, which is not taken apart

    @property
    def type(self) -> str:
        """The class of its module."""
        return type(self.module).__name__ if self.module is not None else ""


Edges = set[tuple[GraphNode, GraphNode]]


@dataclass
class TracedGraph:
    """A tree of calls and what flows between its nodes."""

    root: ModuleCall
    edges: Edges = field(default_factory=set)


def nodes_of_member(member: GraphNode | ModuleCall) -> Iterator[GraphNode]:
    """Yield the nodes in a member of a group, in the order in which they were called."""
    if isinstance(member, GraphNode):
        yield member
        return
    for child in member.children:
        yield from nodes_of_member(child)


def module_calls_in(group: ModuleCall) -> Iterator[ModuleCall]:
    """Yield a group and all groups inside it, outer ones first."""
    yield group
    for child in group.children:
        if isinstance(child, ModuleCall):
            yield from module_calls_in(child)
