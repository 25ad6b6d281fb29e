# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import describe_value_with_origin, tensors_on_line_where
from truestep.explainer.values import ValueOnLine, raw_tensor_shape, tensor_dtype_name

_INTEGERS = ("int64", "int32")


class IndicesDoNotFit(Explainer):
    """Indices that pick from a tensor have another number of axes than it, or other rows.

    Means: gather takes an index with as many axes as its input; for one value a row it has the shape (rows, 1).

    Raises:
        values, actions = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
        values.gather(1, actions)

    Works:
        values, actions = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
        values.gather(1, actions[:, None])[:, 0]

    Fix: write values.gather(1, actions[:, None])[:, 0], with actions of shape (rows,); an index for several axes,
    values[torch.arange(len(actions)), actions], has one length for all.

    Cases:
        otherwise: the index has shape {index} and what it picks from {picked}.
            Fix: both need a row for the same examples: take them by one slice, mask or order where they are made.
        otherwise: one index has shape {one} and the other {other}{shown}.
            Fix: give both one length: torch.arange(len(actions)) beside actions.
        otherwise: {flat}, with one axis alone.
            Fix: write {name}[:, None] as the index, and [:, 0] behind the gather, which gives the axis back.
        otherwise: {deep}.
            Fix: give the index the axes of what it picks from: {name}.view(-1, 1) for one value a row.
    """

    messages = (
        r"Index tensor must (?:be either empty or )?have the same number of dimensions as \w+ tensor",
        r"take_along_dim\(\): input and indices should have the same number of dimensions",
        r"Size does not match at dimension \d+ expected index (?P<index>\[[\d, ]*\]) to be .* than self (?P<picked>\[[\d, ]*\])",
        r"indexing tensors could not be broadcast together with shapes \[(?P<one>[\d, ]*)\], \[(?P<other>[\d, ]*)\]",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        whole = tensors_on_line_where(crash, lambda each: tensor_dtype_name(each) in _INTEGERS)
        shown = f": {describe_value_with_origin(crash, whole[-1])}" if whole else ""
        return {"shown": shown} | ({} if not whole else _index_rank_facts(crash, whole[-1]))


def _index_rank_facts(crash: Crash, index: ValueOnLine) -> dict[str, str]:
    kind = "flat" if len(raw_tensor_shape(index.value)) == 1 else "deep"
    return {kind: describe_value_with_origin(crash, index), "name": index.name}
