# SPDX-License-Identifier: Apache-2.0
"""Rolling up what repeats, and joining the calls of a shared module, so that a deep model fits on a page.

Neighbours are rolled up where they are alike in everything: types, settings, sizes, and how their insides are connected; and
where they stand in a chain (each takes what the one before gives) or side by side (all take and give the same). What one of
them shows holds for all.
"""

from collections import defaultdict
from collections.abc import Sequence

from torch import nn

from truestep.model.graph.graph_nodes import (
    Edges,
    GraphNode,
    ModuleCall,
    TracedGraph,
    module_calls_in,
    nodes_of_member,
)

MAX_PERIOD = 8  # members of a group that may repeat as a unit
LEAST_SAVED = 2  # nodes; less is not worth a frame with a number

Member = GraphNode | ModuleCall
Unit = Sequence[Member]


class GraphRepeatFolder:
    """Rolls up one graph in place."""

    def __init__(self, graph: TracedGraph) -> None:
        self._graph = graph
        self._stands_for: dict[GraphNode, GraphNode] = {}
        self._dropped: Edges = set()  # from one repetition to the next
        self._sources: dict[GraphNode, set[GraphNode]] = defaultdict(set)
        self._consumers: dict[GraphNode, set[GraphNode]] = defaultdict(set)
        for source, consumer in graph.edges:
            self._sources[consumer].add(source)
            self._consumers[source].add(consumer)
        self._numbers: dict[object, int] = {}  # one for each structure that there is
        self._structures: dict[Member, int] = {}

    def roll(self) -> None:
        """Roll up the whole tree, then join what is shared, and bring the edges to what is left."""
        self._fold_repeats_in_group(self._graph.root)
        self._merge_calls_of_same_module()
        edges = {
            (self._representative_node(source), self._representative_node(consumer))
            for source, consumer in self._graph.edges
            if (source, consumer) not in self._dropped
        }
        self._graph.edges = {edge for edge in edges if edge[0] is not edge[1]}

    def _representative_node(self, node: GraphNode) -> GraphNode:
        while node in self._stands_for:
            node = self._stands_for[node]
        return node

    # ------------------------------------------------------------------ repeated neighbours

    def _fold_repeats_in_group(self, group: ModuleCall) -> None:
        rolled: list[Member] = []
        position = 0
        while position < len(group.children):
            period, times = self._longest_repeat_at(group.children, position)
            units = [
                group.children[start : start + period]
                for start in range(position, position + period * times, period)
            ]
            rolled += units[0] if times == 1 else [self._fold_into_first_unit(units)]
            position += period * times
        group.children = rolled
        for child in rolled:
            if isinstance(child, ModuleCall):
                self._fold_repeats_in_subgroups(child)

    def _fold_repeats_in_subgroups(self, group: ModuleCall) -> None:
        if group.module is not None:
            self._fold_repeats_in_group(group)
            return
        for member in group.children:  # of a unit that repeats
            if isinstance(member, ModuleCall):
                self._fold_repeats_in_group(member)

    def _longest_repeat_at(self, children: list[Member], position: int) -> tuple[int, int]:
        best = (1, 1)
        for period in range(1, MAX_PERIOD + 1):
            units = [children[position : position + period]]
            structure = [self._structure_id(member) for member in units[0]]
            start = position + period
            while [self._structure_id(member) for member in children[start : start + period]] == structure:
                units.append(children[start : start + period])
                start += period
            times = self._num_connected_units(units)
            saved = (times - 1) * sum(1 for member in units[0] for _ in nodes_of_member(member))
            if times * period > best[0] * best[1] and saved >= LEAST_SAVED:
                best = (period, times)
        return best

    def _num_connected_units(self, units: Sequence[Unit]) -> int:
        """Return how many units, from the first on, are a chain or stand side by side."""
        nodes = [[node for member in unit for node in nodes_of_member(member)] for unit in units]
        while len(nodes) > 1 and not self._are_units_alike(nodes):
            nodes.pop()
        return len(nodes)

    def _are_units_alike(self, units: list[list[GraphNode]]) -> bool:
        """Whether each unit does with its neighbours, node by node, what the others do with theirs."""
        place = {
            node: (number, index) for number, unit in enumerate(units) for index, node in enumerate(unit)
        }
        given = [[self._sources[node] - place.keys() for node in unit] for unit in units]
        taken = [[self._consumers[node] - place.keys() for node in unit] for unit in units]
        links = [  # to which node of which unit from here
            {
                (index, place[consumer][1], place[consumer][0] - number)
                for index, node in enumerate(unit)
                for consumer in self._consumers[node] & place.keys()
            }
            for number, unit in enumerate(units)
        ]
        steps = [{link for link in each if link[2]} for each in links]
        if not _all_equal([each - step for each, step in zip(links, steps, strict=True)]):
            return False
        if not any(steps):  # side by side
            return _all_equal(given) and _all_equal(taken)
        return (
            all(distance == 1 for _, _, distance in steps[0])
            and _all_equal(steps[:-1])
            and not steps[-1]
            and _all_equal(given[1:])  # what all are given alike, as a mask
            and all(map(set.issubset, given[1], given[0]))
            and _all_equal(taken[:-1])
            and all(map(set.issubset, taken[0], taken[-1]))
        )

    def _fold_into_first_unit(self, units: Sequence[Unit]) -> ModuleCall:
        """Let the first unit stand for all of them."""
        lists = [[node for member in unit for node in nodes_of_member(member)] for unit in units]
        owner = {node: number for number, nodes in enumerate(lists) for node in nodes}
        for nodes in lists[1:]:
            self._stands_for |= dict(zip(nodes, lists[0], strict=True))
        self._dropped |= {
            (node, consumer)
            for node, number in owner.items()
            for consumer in self._consumers[node]
            if owner.get(consumer, number) != number
        }
        first = units[0][0]
        if len(units[0]) == 1 and isinstance(first, ModuleCall):
            last = units[-1][0]
            assert isinstance(last, ModuleCall)
            if last.module is first.module:
                first.num_calls = len(units)
            else:
                first.times, first.last_name = len(units), last.name
            return first
        return ModuleCall("", None, list(units[0]), times=len(units))

    # ------------------------------------------------------------------ structure

    def _structure_id(self, member: Member) -> int:
        """Return a number that members have in common if they are alike."""
        if member not in self._structures:
            if isinstance(member, ModuleCall):
                own: object = self._structure_key(member)
            else:
                own = member.name.rpartition(".")[2] if member.kind == "parameter" else member.name
            described = repr(member.shapes), own
            self._structures[member] = self._numbers.setdefault(described, len(self._numbers))
        return self._structures[member]

    def _structure_key(self, group: ModuleCall) -> object:
        places = {node: place for place, node in enumerate(nodes_of_member(group))}
        connections = sorted(
            (places[node], places[consumer])
            for node in places
            for consumer in self._consumers[node]
            if consumer in places
        )
        assert group.module is not None
        return (
            type(group.module),
            group.module.extra_repr(),
            group.module.training,
            tuple((tuple(each.shape), each.requires_grad) for each in group.module.parameters()),
            tuple(self._structure_id(child) for child in group.children),
            tuple(connections),
        )

    # ------------------------------------------------------------------ shared modules

    def _merge_calls_of_same_module(self) -> None:
        """Let the first call of a module stand for its others; what has no weights is not one thing for being one object."""
        first: dict[nn.Module, ModuleCall] = {}
        for group in list(module_calls_in(self._graph.root)):
            module = group.module
            if module is None or group is self._graph.root or not any(True for _ in module.parameters()):
                continue
            known = first.setdefault(module, group)
            if known is group:
                continue
            mine, its = list(nodes_of_member(group)), list(nodes_of_member(known))
            if [node.name for node in mine] == [node.name for node in its] and not set(mine) & set(its):
                self._stands_for |= dict(zip(mine, its, strict=True))
                known.num_calls += group.times
                _remove_node_from_graph(self._graph.root, group)


def _all_equal(values: Sequence[object]) -> bool:
    return all(each == values[0] for each in values[1:])


def _remove_node_from_graph(root: ModuleCall, gone: ModuleCall) -> None:
    for group in module_calls_in(root):
        if gone in group.children:
            group.children.remove(gone)
            return
