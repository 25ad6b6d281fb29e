# SPDX-License-Identifier: Apache-2.0
import ast
import re

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import describe_value_with_origin, tensors_on_line_where
from truestep.explainer.values import ValueOnLine, tensor_dtype_name

_PICKS = re.compile(r"gather|scatter|take_along_dim|index_")


class IndicesNotIntegers(Explainer):
    """Class labels, tokens or indices are no integers of 64 bits.

    Means: cross entropy, embeddings, gather and indexing take int64 (Long) indices.

    Raises:
        logits, labels = torch.zeros(2, 3), torch.tensor([1.0, 2.0])
        F.cross_entropy(logits, labels)

    Works:
        logits, labels = torch.zeros(2, 3), torch.tensor([1.0, 2.0])
        F.cross_entropy(logits, labels.long())

    Fix: write labels.long() (or make them with dtype=torch.int64 in the data set). If they are numbers to be
    predicted and no classes, the loss is F.mse_loss.

    Cases:
        otherwise: {row} is a row of {wrong}, which is one tensor: no labels were given with it.
            Fix: give both: run.data((X, y), batch_size=...), or TensorDataset(X, y) to a DataLoader.
        otherwise: {wrong}. Fix: write {name}.long().
        otherwise: the indices are {given}.
    """

    messages = (
        r"expected target dtype to be Long or Byte, but got (?P<given>\w+)",
        r"expected scalar type Long but (?:found|got) (?P<given>Float|Double|Half|BFloat16|Int|Bool|Byte)",
        r"Expected object of scalar type Long but got scalar type (?P<given>\w+) for argument #2 'target'",
        r"#1 'indices' to have .*scalar types?:? Long.*; but got (?:torch\.)?(?:cuda\.)?(?P<given>\w+?)(?:Tensor)? instead",
        r"one_hot is only applicable to index tensor",
        r"tensors used as indices must be long, (?:int, )?byte or bool tensors",
        r"(?:gather|scatter\w*|index_\w+|take)\(\): Expected dtype (?:int32(?:/| or ))?int64 for index",
        r"take_along_dim\(\): dtype of indices should be Long but got (?P<given>\w+)",
        r"nll_loss(?:2d)?_forward\w*\" not implemented for '(?P<given>\w+)'",
        r"\"nll_loss\w*\" not implemented for '(?P<given>\w+)'",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        wrong = _tensors_passed_as_index(crash) or tensors_on_line_where(
            crash, lambda each: tensor_dtype_name(each) != "int64" and not each.requires_grad
        )
        if not wrong:
            return {}
        facts = {"wrong": describe_value_with_origin(crash, wrong[-1]), "name": wrong[-1].name}
        row = re.search(rf"\b{re.escape(wrong[-1].name)}\[\d+\]", crash.user.text if crash.user else "")
        is_table = (
            wrong[-1].value.is_floating_point() and wrong[-1].value.dim() > 1 and len(wrong[-1].value) > 2
        )
        return facts | ({"row": row[0]} if row and is_table else {})


def _tensors_passed_as_index(crash: Crash) -> list[ValueOnLine]:
    """Return the tensors that a call on the line is given to pick by, where they may also be converted."""
    for call in crash.written(ast.Call):
        if not isinstance(call.func, ast.Attribute) or not _PICKS.match(call.func.attr):
            continue
        is_function = isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
        given = [*call.args[is_function:], *(each.value for each in call.keywords if each.arg != "src")]
        names = {ast.unparse(node) for each in given for node in ast.walk(each) if isinstance(node, ast.expr)}
        found = tensors_on_line_where(crash, lambda each: not each.requires_grad)
        return [each for each in found if each.name in names][:1]
    return []
