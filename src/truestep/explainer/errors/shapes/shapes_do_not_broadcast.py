# SPDX-License-Identifier: Apache-2.0
"""ShapesDoNotBroadcast."""

from truestep.explainer.evidence import shapes_and_origins
from truestep.explainer.explainer import Cause, Crash, Explainer, Match
from truestep.explainer.values import shape_as_evidence, shape_at_crash


class ShapesDoNotBroadcast(Explainer):
    """An operation on two tensors gets shapes that do not fit each other.

    Means: sizes are compared from the last axis back; each pair must be equal, or one of them 1 or missing.

    Raises:
        prediction, truth = torch.zeros(4, 3), torch.zeros(4, 2)
        prediction - truth

    Works:
        prediction, truth = torch.zeros(4, 3), torch.zeros(4, 3)
        prediction - truth

    Fix: bring both to one shape. A factor for each row needs its own axes: weights[:, None] for (batch,) against
    (batch, features); sums over an axis keep it with keepdim=True; images of two sizes need F.interpolate or padding.
    """

    messages = (
        (
            r"The size of tensor a \((?P<first>\d+)\) must match the size of tensor b \((?P<second>\d+)\) at non-singleton "
            r"dimension (?P<axis>\d+)"
        ),
        (
            r"The expanded size of the tensor \((?P<first>\d+)\) must match the existing size \((?P<second>\d+)\) at non-singleton "
            r"dimension (?P<axis>\d+)"
        ),
        (
            r"einsum\(\): subscript (?P<axis>\w) has size (?P<second>\d+) for operand \d+ which does not broadcast with previously "
            r"seen size (?P<first>\d+)"
        ),
        (
            r"shape mismatch: value tensor of shape \[(?P<second>[\d, ]+)\] cannot be broadcast to indexing result of shape "
            r"\[(?P<first>[\d, ]+)\]"
        ),
        r"output with shape \[(?P<first>[\d, ]*)\] doesn't match the broadcast shape \[(?P<second>[\d, ]*)\]",
        r"could not broadcast input array from shape (?P<first>\([\d,]*\)) into shape (?P<second>\([\d,]*\))",
        r"operands could not be broadcast together with shapes (?P<first>\([\d,]*\)) (?P<second>\([\d,]*\))",
    )
    checks = ("LOSS017",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        axis = match.groupdict().get("axis")
        where = f" at axis {axis}" if axis else ""
        shown = shapes_and_origins(crash)
        says = f"{match['first']} meets {match['second']}{where}"
        return Cause(f"{says}: {shown}." if shown else f"{says}.", _rows(crash, match) or _fix(crash))


def _rows(crash: Crash, match: Match) -> str:
    """Say what the rows are where two batches of different sizes meet."""
    if match.groupdict().get("axis") != "0":
        return ""
    sizes = {int(match["first"]), int(match["second"])}
    rows = {
        shape_at_crash(each.value)[0]: each.name
        for each in reversed(crash.tensors)
        if len(shape_at_crash(each.value)) > 1
    }
    found = [(name, size) for size, name in rows.items() if size in sizes]
    if not found:
        return ""
    have = " and ".join(f"{name} has {size} rows" for name, size in found)
    return (
        f"{have}, one for each example: what is made beside a batch, as noise and targets are, needs as many rows as it. Write "
        "len(x) there in place of a number; the last batch may be shorter, too."
    )


def _fix(crash: Crash) -> str:
    shapes = [shape_at_crash(each.value) for each in crash.tensors]
    if len(shapes) < 2:
        return ""
    first, second = crash.tensors[0], crash.tensors[1]
    small, large = sorted((first, second), key=lambda each: len(shape_at_crash(each.value)))
    few, many = shape_at_crash(small.value), shape_at_crash(large.value)
    if len(few) == 1 < len(many) and few[0] == many[0]:
        return f"{small.name} has one value a row: write {small.name}.view(-1{', 1' * (len(many) - 1)})."
    if len(few) == len(many) and sorted(few) == sorted(many) and few != many:
        return f"the axes stand in another order: transpose or permute {small.name} to {shape_as_evidence(many)}."
    return ""
