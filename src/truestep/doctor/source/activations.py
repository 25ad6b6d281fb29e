# SPDX-License-Identifier: Apache-2.0
"""The activation between a model and its loss, and the code without it."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, replaced, text_of


def activation(module: SourceModule, loss: ast.Call, given: ast.expr | None) -> ast.Call:
    """Return the call that made a loss's input: written in it, or under a name that it alone reads."""
    if isinstance(given, ast.Name):
        made = module.definitions(given)
        reads = [each for each in module.reads(given.id) if module.scope(each) is module.scope(given)]
        if len(made) != 1 or not all(loss in module.ancestors(each) for each in reads):
            raise SourceRewriteError
        given = made[0]
    if not isinstance(given, ast.Call):
        raise SourceRewriteError
    return given


def without_activation(module: SourceModule, loss: ast.Call, given: ast.expr | None) -> Edits:
    """Put what goes into the activation in its place."""
    made = activation(module, loss, given)
    last = (dotted(made.func) or ast.unparse(made.func)).rsplit(".", 1)[-1]
    if last not in ("softmax", "sigmoid"):
        raise SourceRewriteError
    free = (module.qualify(made.func) or "").startswith("torch.")
    inner = (made.args[0] if made.args else None) if free else getattr(made.func, "value", None)
    if inner is None:
        raise SourceRewriteError
    return [replaced(module, made, text_of(module, inner))]
