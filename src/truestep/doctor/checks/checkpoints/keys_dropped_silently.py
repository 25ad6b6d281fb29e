# SPDX-License-Identifier: Apache-2.0
"""strict=False whose result nobody reads."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.value_origins import argument, literal

_PARTS = ("named_buffers", "named_parameters")


class KeysDroppedSilently(SourceCheck):
    """load_state_dict(strict=False) is called and its result thrown away.

    Why: with other names (a `module.` prefix) nothing at all is loaded, and nothing says so.

    Bad:
        net.load_state_dict(torch.load("w.pt", map_location="cpu"), strict=False)  # here

    Good:
        keys = net.load_state_dict(torch.load("w.pt", map_location="cpu"), strict=False)
        assert set(keys.missing_keys) <= {"head.weight", "head.bias"}, keys

    Fix: leave out strict=False, or look at missing_keys and unexpected_keys of what load_state_dict returns.

    Evidence: CSAILVision/semantic-segmentation-pytorch 8f27c9b9 mit_semseg/models/models.py:155;
    facebookresearch/lingua 437d680e apps/fastRNN/generate.py:54; corpus, 186 repositories, beds A, B, I: 10
    true, 18 debatable, 3 false.
    """

    code = "SAVE003"
    words = ("load_state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it where the result is not used, or where it is used as the model."""
        if module.program.identifiers & {"missing_keys", "unexpected_keys"}:
            return
        for call in module.method_calls("load_state_dict"):
            parent = module.parents[call]
            kept = isinstance(parent, ast.Assign) and _is_load_result_inspected(module, parent.targets[0])
            if (
                literal(module, argument(call, 1, "strict")) is False
                and isinstance(parent, (ast.Expr, ast.Assign))
                and not kept
                and not _is_partial_load_deliberate(module, call)
            ):
                text = "strict=False drops keys that don't fit without a word: perhaps all of them."
                # what the file and the model hold can't be read
                yield At(call, text, QUESTION)


def _is_partial_load_deliberate(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether the keys were picked by hand, or a strict attempt came first: then its author knows what is left out."""
    if module.enclosing(call, ast.ExceptHandler) is not None:
        return True
    given = argument(call, 0, "state_dict")
    name = dotted_name(given) if given is not None else None
    values = [given, *(module.definitions(given) if isinstance(given, (ast.Name, ast.Attribute)) else [])]
    if any(isinstance(each, (ast.DictComp, ast.Dict)) for each in values) or _is_partial_state_dict(
        module, call, values
    ):
        return True
    if any(isinstance(each, ast.Call) and module.functions.target(each) is not None for each in values):
        return True
    uses = [module.parents[each] for each in module.reads(name)] if name is not None else []
    return any(
        (isinstance(each, ast.Attribute) and each.attr in ("pop", "update"))
        or (isinstance(each, ast.Subscript) and not isinstance(each.ctx, ast.Load))
        for each in uses
    )


def _is_partial_state_dict(module: SourceModule, call: ast.Call, values: list[ast.expr | None]) -> bool:
    """Tell a dict of the buffers alone, and one of several that are loaded one after the other."""
    assert isinstance(call.func, ast.Attribute)
    made = [part for each in values if each is not None for part in walk(each)]
    if any(isinstance(each, ast.Attribute) and each.attr in _PARTS for each in made):
        return True
    place, block = dotted_name(call.func.value), module.parents[module.statement(call)]
    others = [each for each in module.method_calls("load_state_dict") if each is not call]
    return any(
        isinstance(each.func, ast.Attribute)
        and dotted_name(each.func.value) == place
        and module.parents[module.statement(each)] is block
        for each in others
    )


def _is_load_result_inspected(module: SourceModule, target: ast.expr) -> bool:
    """Tell whether what did not fit is taken apart, or read later."""
    name = dotted_name(target)
    if isinstance(target, ast.Tuple) or name is None:
        return True
    reads = [each for each in module.reads(name) if each.lineno > target.lineno]
    return any(
        not isinstance(module.parents[each], ast.Call) or each in _arguments_of_parent_call(module, each)
        for each in reads
    )


def _arguments_of_parent_call(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    call = module.parents[node]
    return call.args if isinstance(call, ast.Call) else []
