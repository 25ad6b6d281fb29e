# SPDX-License-Identifier: Apache-2.0
"""torch.save of a module, and torch.load that runs what the file says."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, is_none, last_part, walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, insert_behind
from truestep.doctor.source.value_origins import argument, literal, value_origins

_COPIES = ("copy", "deepcopy", "dict")


class WholeModelSaved(SourceCheck):
    """A whole module is saved instead of its state_dict, or torch.load is called with weights_only=False.

    Why: the file names classes and paths of today's code, and torch.load refuses it (weights_only since 2.6).
    Unpickling runs whatever code the file names.

    Bad:
        torch.save(net, "net.pt")  # here

    Good:
        torch.save(net.state_dict(), "net.pt")

    Fix: save net.state_dict(); make the module, then load_state_dict of what torch.load(weights_only=True) gives.

    Evidence: HumanCompatibleAI/imitation e5ef1880 src/imitation/scripts/train_preference_comparisons.py:46;
    corpus, 186 repositories, beds A, B, C, D, E, F, G, H, I, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y: 135
    true, 38 debatable, 18 false.
    """

    code = "SAVE001"
    words = ("torch.save", "save(", "weights_only")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report torch.save of a name that is a module, and the literal False."""
        for call in module.calls("torch.load"):
            if literal(module, argument(call, None, "weights_only")) is False:
                yield At(call, "weights_only=False runs whatever code the file names.", ADVICE)
        for call in module.calls("torch.save"):
            given = call.args[0] if call.args else None
            if not isinstance(given, (ast.Name, ast.Attribute)) or _is_dict_filled_by_key(module, given):
                continue
            if _is_model_by_name_only(module, given):
                continue
            if module.kind(given) in ("module", "ddp"):
                text = f"The whole of {ast.unparse(given)} is pickled, with its class and path."
                yield At(call, text, ADVICE if _is_state_dict_saved_too(module, call, given) else RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Save its state."""
        if module.qualify(node.func) != "torch.save":
            raise SourceRewriteError
        return [insert_behind(module, node.args[0], ".state_dict()")]


def _is_state_dict_saved_too(module: SourceModule, call: ast.Call, given: ast.expr) -> bool:
    """Tell a block that saves the model's state, too, itself or in a dict: that file can be loaded anywhere."""
    block = module.parents[module.statement(call)]
    if block is module.tree:
        return False  # one after the other, as a manual shows them
    others = [each for each in module.calls("torch.save") if module.parents[module.statement(each)] is block]
    saved = [
        value or other.args[0]
        for other in others
        if other.args
        for value in module.definitions(other.args[0]) or [None]
    ]
    return f"{dotted_name(given)}.state_dict" in {
        dotted_name(part.func) for each in saved for part in walk(each) if isinstance(part, ast.Call)
    }


def _is_model_by_name_only(module: SourceModule, given: ast.expr) -> bool:
    """Tell what only its name calls a model, while all that it is given is in sight: a state, a path, nothing yet."""
    origins = list(value_origins(module, given))
    known = [each for each in origins if each is not None and not is_none(each)]
    return bool(known) and None not in origins and all(_is_not_a_module(module, each) for each in known)


def _is_not_a_module(module: SourceModule, value: ast.expr) -> bool:
    """Tell `net.state_dict()`, a copy of it, a dict, a list, and what goes by another name where it comes from."""
    while isinstance(value, ast.Call) and last_part(value.func) in _COPIES:
        inside = value.func.value if isinstance(value.func, ast.Attribute) else None
        if not value.args and inside is None:
            return True  # dict(net=...)
        value = value.args[0] if value.args or inside is None else inside
    asked = isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "state_dict"
    is_named = isinstance(value, (ast.Name, ast.Attribute))
    if is_named and module.home(value).kind(value) not in ("module", "ddp"):
        return True
    return asked or isinstance(value, (ast.Constant, ast.Dict, ast.DictComp, ast.List))


def _is_dict_filled_by_key(module: SourceModule, given: ast.expr) -> bool:
    """Tell a dict of weights by a model's name: `model[key] = value`."""
    name = dotted_name(given) or ""
    uses = [module.parents[each] for each in module.reads(name)]
    return any(isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store) for each in uses)
