# SPDX-License-Identifier: Apache-2.0
"""A picture in a terminal: a tree of frames and boxes in the order of the calls, without arrows."""

from truestep.core.rich_imports import Text, Tree
from truestep.model.graph.picture import Border, Box, Picture


def picture_tree(model: str, picture: Picture) -> Tree:
    """Return the picture as a tree."""
    root = Tree(Text(model, "bold"), guide_style="dim")
    members: list[Box | Border] = [*picture.boxes, *picture.frames]
    branches: dict[str | None, Tree] = {None: root}
    for member in sorted(members, key=lambda each: int(each.id.lstrip("boxframe"))):
        above = branches[member.frame]
        if isinstance(member, Border):
            branches[member.id] = above.add(Text(member.title, "bold"))
        else:
            first, *rest = member.lines
            above.add(Text.assemble(first, ("  " + "  ".join(rest), "dim")))
    return root
