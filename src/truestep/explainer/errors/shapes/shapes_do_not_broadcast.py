# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import shapes_and_origins_text
from truestep.explainer.values import format_shape_tuple, raw_tensor_shape


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

    Cases:
        otherwise: {first} meets {second}{where}{shown}.
            Fix: {pair}: where each row is an example, both need the rows of the same ones. Take them by one slice, mask or
            order where they are made.
        otherwise: {first} meets {second}{where}{shown}.
            Fix: {have}, one for each example: what is made beside a batch, as noise and targets are, needs as many rows as
            it. Write len(x) there in place of a number; the last batch may be shorter, too.
        otherwise: {first} meets {second}{where}{shown}.
            Fix: {column} has one value a row: write {column}.view(-1{ones}).
        otherwise: {first} meets {second}{where}{shown}.
            Fix: the axes stand in another order: transpose or permute {turned} to {order}.
        otherwise: {first} meets {second}{where}{shown}.
    """

    messages = (
        r"The size of tensor a \((?P<first>\d+)\) must match .* b \((?P<second>\d+)\) at .* dimension (?P<axis>\d+)",
        r"The expanded size .*tensor \((?P<first>\d+)\) .* size \((?P<second>\d+)\) at .* dimension (?P<axis>\d+)",
        r"einsum\(\): subscript (?P<axis>\w) has size (?P<second>\d+) for .* not broadcast .* size (?P<first>\d+)",
        r"value tensor of shape \[(?P<second>[\d, ]+)\] .* broadcast to .* of shape \[(?P<first>[\d, ]+)\]",
        r"output with shape \[(?P<first>[\d, ]*)\] doesn't match the broadcast shape \[(?P<second>[\d, ]*)\]",
        r"could not broadcast input array from shape (?P<first>\([\d,]*\)) into shape (?P<second>\([\d,]*\))",
        r"operands could not be broadcast together with shapes (?P<first>\([\d,]*\)) (?P<second>\([\d,]*\))",
    )
    checks = ("LOSS017",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        axis, shown = match.groupdict().get("axis"), shapes_and_origins_text(crash)
        facts = {"where": f" at axis {axis}" if axis else "", "shown": f": {shown}" if shown else ""}
        return facts | (
            (_different_batch_size_facts(crash, match) if axis == "0" else {}) or _two_shapes_facts(crash)
        )


def _different_batch_size_facts(crash: Crash, match: Match) -> dict[str, str]:
    """Say what the rows are where two batches of different sizes meet; the values nearest to the end of the line count."""
    sizes = {int(match["first"]), int(match["second"])}
    shapes = [(each.name, raw_tensor_shape(each.value)) for each in reversed(crash.tensors)]
    rows = {shape[0]: name for name, shape in shapes if shape and shape[0] in sizes}
    tables = {shape[0] for _, shape in shapes if len(shape) > 1 and shape[0] in sizes}
    said = " and ".join(f"{name} has {size} rows" for size, name in rows.items())
    if len(rows) == len(sizes) > len(tables):
        return {"pair": said}
    return {"have": said} if tables else {}


def _two_shapes_facts(crash: Crash) -> dict[str, str]:
    shapes = [(each.name, raw_tensor_shape(each.value)) for each in crash.tensors[:2]]
    if len(shapes) < 2:
        return {}
    (name, few), (_, many) = sorted(shapes, key=lambda each: len(each[1]))
    if len(few) == 1 < len(many) and few[0] == many[0]:
        return {"column": name, "ones": ", 1" * (len(many) - 1)}
    is_turned = len(few) == len(many) and sorted(few) == sorted(many) and few != many
    return {"turned": name, "order": format_shape_tuple(many)} if is_turned else {}
