# SPDX-License-Identifier: Apache-2.0
import ast
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match


class IndexOutOfRange(Explainer):
    """An index reaches beyond a table or a tensor, as a token beyond an embedding does.

    Means: indices go from 0 to size - 1; an embedding of 100 rows knows the tokens 0 to 99.

    Raises:
        tokens = nn.Embedding(100, 8)
        tokens(torch.tensor([[5, 100]]))

    Works:
        tokens = nn.Embedding(101, 8)
        tokens(torch.tensor([[5, 100]]))

    Fix: give the embedding one row more than the largest index (padding and special tokens count too), take tokenizer
    and model from the same checkpoint (model.resize_token_embeddings), or cut sequences to the longest position.

    Cases:
        otherwise: index {index} into axis {axis} of size {size}.
        otherwise: {short}.
            Fix: look at why it is shorter: an empty folder, a line that was split, one step more.
        otherwise: {layer} has rows 0 to {last_row}; {reach}.
    """

    types = ("IndexError", "RuntimeError")
    messages = (
        r"index out of range in self",
        r"index out of range: Tried to access index (?P<index>-?\d+) out of table with (?P<last>\d+) rows",
        r"index (?P<index>-?\d+) is out of bounds for (?:dimension|axis) (?P<axis>\d+) with size (?P<size>\d+)",
        r"(?P<sequence>list|tuple) index out of range",
    )
    not_in_a_log = "which index it is, and how many rows the table has"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        if match.groupdict().get("sequence"):
            return _indexed_sequence_lengths(crash)
        layer = crash.layer
        rows = getattr(layer.module, "num_embeddings", None) if layer else None
        if layer is None or not isinstance(rows, int):
            return {}
        return {
            "last_row": str(rows - 1),
            "reach": _out_of_range_side_text(layer.frame.locals().get("input"), rows),
        }


def _out_of_range_side_text(indices: Any, rows: int) -> str:
    """Say on which side indices leave the table; which ones they are is the user's own data."""
    below, above = bool((indices < 0).any()), bool((indices >= rows).any())
    if above and below:
        return "some indices lie below it and some above"
    return "some indices are negative" if below else "some indices are larger"


def _indexed_sequence_lengths(crash: Crash) -> dict[str, str]:
    """Return how many items the lists and tuples have that the line takes some from."""
    from_names = {ast.unparse(each.value) for each in crash.written(ast.Subscript)}
    held = [each for each in crash.values if each.name in from_names and type(each.value) in (list, tuple)]
    shown = ", ".join(f"`{each.name}` has {len(each.value)} items" for each in held[:2])
    return {"short": shown} if shown else {}
