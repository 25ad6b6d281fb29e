# SPDX-License-Identifier: Apache-2.0
"""A causal language model trained to repeat its input."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import argument, constant, unwrapped, value_origins

_LABELS = "labels"
_CAUSAL = ("ForCausalLM", "LMHeadModel")


class LogitsNotShifted(SourceCheck):
    """The logits of a causal language model are compared with its labels at the same places.

    Why: the labels of transformers' data are the input itself, and its models shift them inside. Unshifted, each place is
    asked for the token that it sees: the loss falls to nearly 0, and nothing is learnt of what comes next.

    Bad:
        model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")

        def loss_of(inputs):
            labels = inputs.pop("labels")
            logits = model(**inputs).logits
            return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))  # here

    Good:
        model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")

        def loss_of(inputs):
            labels = inputs.pop("labels")[:, 1:]
            logits = model(**inputs).logits[:, :-1]
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    Fix: logits[:, :-1] and labels[:, 1:].
    """

    code = "LOSS049"
    words = _CAUSAL

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss of `.logits` and of what stands under "labels", where neither is cut."""
        if not any(each.endswith(_CAUSAL) for each in module.identifiers):
            return
        for call in losses_of(module, "cross_entropy"):
            given, target = argument(call, 0, "input"), argument(call, 1, "target")
            if given is None or target is None or _is_sliced(module, given) or _is_sliced(module, target):
                continue
            if _is_logits(module, given) and _is_labels(module, target):
                yield At(
                    call,
                    "Each place is compared with its own token: a causal model is asked for the next.",
                    RISK,
                )


def _is_sliced(module: SourceModule, node: ast.expr, deep: int = 4) -> bool:
    """Tell whether a part is taken on some way to a value."""
    if any(isinstance(part, ast.Slice) for part in walk(node)):
        return True
    names = [each for each in walk(node) if isinstance(each, ast.Name)] if deep else []
    values = [value for each in names for value in module.definitions(each) if value is not None]
    return any(_is_sliced(module, value, deep - 1) for value in values)


def _is_logits(module: SourceModule, node: ast.expr) -> bool:
    origins = [unwrapped(node), *value_origins(module, node)]
    return any(isinstance(each, ast.Attribute) and each.attr == "logits" for each in origins)


def _is_labels(module: SourceModule, node: ast.expr) -> bool:
    """Tell `inputs["labels"]`, `inputs.pop("labels")` and `inputs.get("labels")`."""
    inner: list[ast.expr | None] = [unwrapped(node), *value_origins(module, node)]
    inner += [value for each in inner if each is not None for value in module.definitions(each)]
    for each in inner:
        key = each.args[0] if isinstance(each, ast.Call) and each.args else getattr(each, "slice", None)
        if constant(key) == _LABELS:
            return True
    return any(isinstance(each, ast.Subscript) and constant(each.slice) == _LABELS for each in walk(node))
