# SPDX-License-Identifier: Apache-2.0
"""A padding mask that marks what is to be seen."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.collating import batch_origins
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, replaced, text_of
from truestep.doctor.source.values import is_call_of, seen_through, unwrapped

_NAMES = (
    "key_padding_mask",
    "src_key_padding_mask",
    "tgt_key_padding_mask",
    "memory_key_padding_mask",
)
_LAYERS = (
    "Transformer",
    "MultiheadAttention",
    *(f"Transformer{each}" for each in ("Encoder", "EncoderLayer", "Decoder", "DecoderLayer")),
)


class PaddingMaskInverted(SourceCheck):
    """A key padding mask is True where there are tokens, and False at the padding.

    Why: torch's attention leaves out what is True: it sees the padding alone, or gives NaN.

    Bad:
        layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        tokens = torch.randint(0, 5, (2, 6))
        mask = tokens != 0
        out = layer(nn.Embedding(5, 8)(tokens), src_key_padding_mask=mask)  # here

    Good:
        layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        tokens = torch.randint(0, 5, (2, 6))
        mask = tokens == 0
        out = layer(nn.Embedding(5, 8)(tokens), src_key_padding_mask=mask)

    Fix: tokens == pad, or ~mask.
    """

    code = "DATA037"
    words = ("key_padding_mask",)
    shows_as = ("DATA042",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a mask made by `!=` that goes into a layer of torch as it is, be it in a batch or an argument."""
        for call in module.all(ast.Call):
            given = [word.value for word in call.keywords if word.arg in _NAMES]
            for mask in given:
                origins = batch_origins(module, mask)
                if origins.is_whole and all(_marks_tokens(module, each) for each in origins.made):
                    if _is_layer(module, call.func):
                        yield At(
                            call,
                            f"{ast.unparse(mask)} is True for the tokens: attention leaves these out.",
                            BUG,
                        )
                        break

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Turn the mask round where it is given."""
        given = [word.value for word in node.keywords if word.arg in _NAMES]
        if len(given) != 1 or not isinstance(given[0], ast.Name | ast.Attribute):
            raise SourceRewriteError
        return [replaced(module, given[0], f"~{text_of(module, given[0])}")]


def _marks_tokens(module: SourceModule, value: ast.expr) -> bool:
    """Tell `tokens != pad`, `tokens.ne(pad)`, and `torch.arange(longest) < lengths`."""
    if isinstance(value, ast.Compare):
        first = seen_through(module, unwrapped(value.left))
        counts = is_call_of(module, first, "torch.arange")
        is_before = isinstance(value.ops[0], ast.Lt) and counts
        return len(value.ops) == 1 and (isinstance(value.ops[0], ast.NotEq) or is_before)
    if is_call_of(module, value, "torch.ne"):
        return True
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "ne"


def _is_layer(module: SourceModule, called: ast.expr) -> bool:
    """Tell whether what is applied was made by torch."""
    made = [called] if isinstance(called, ast.Call) else module.definitions(called)
    names = {module.qualify(each.func) if isinstance(each, ast.Call) else None for each in made}
    return bool(names) and all(each in {f"torch.nn.{name}" for name in _LAYERS} for each in names)
