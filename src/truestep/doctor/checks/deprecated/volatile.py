# SPDX-License-Identifier: Apache-2.0
"""volatile=True, which does nothing."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, QUESTION, At, SourceCheck
from truestep.doctor.source.loss_modules import is_without_grad
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name
from truestep.doctor.source.untaken_branches import SettledValues
from truestep.doctor.source.value_origins import argument, unwrap_expression

_TARGETS = re.compile(
    r"(^|[_.])(targets?|labels?|lbls?|priors?|anchors?|gts?|ground_?truths?|truths?|annos?|annotations?|ys?|y_true)([_.]?(vars?|v|batch|b|\d+))?$",
    re.IGNORECASE,
)


class Volatile(SourceCheck):
    """A tensor is made with volatile=True.

    Why: it has had no effect since torch 0.4 (a warning only): gradients are recorded.

    Bad:
        from torch.autograd import Variable

        v = Variable(x, volatile=True)  # here

    Good:
        with torch.no_grad():
            out = net(x)

    Fix: with torch.no_grad(): or torch.inference_mode().

    Evidence: ZhaoJ9014/face.evoLVe a9897bda applications/align/detector.py:79; ZhaoJ9014/face.evoLVe a9897bda
    applications/align/detector.py:100; corpus, 186 repositories, beds E, F, G, H, I, K, L, M, N, O, P, Q, R, S,
    T, U, V, Y: 253 true, 23 debatable, 6 false.
    """

    code = "OLD007"
    gone_since = (0, 4)
    words = ("volatile",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the keyword of Variable."""
        for call in module.calls("torch.autograd.Variable", "torch.Variable"):
            given = argument(call, None, "volatile")
            if given is None or SettledValues(module).holds(given) is False or is_without_grad(module, call):
                continue
            if _is_target_or_prior(module, call):
                yield At(call, "volatile has no effect; by its name it needs no gradient anyway.", QUESTION)
            else:
                yield At(call, "volatile has no effect: gradients are recorded.", BUG)


def _is_target_or_prior(module: SourceModule, call: ast.Call) -> bool:
    """Tell targets and priors by their name: a loss alone takes them, and nothing is recorded for them."""
    kept = _assigned_name(module, call)
    named = [kept] if kept is not None else [unwrap_expression(each) for each in call.args[:1]]
    return any(_TARGETS.search(dotted_name(each) or "") for each in named)


def _assigned_name(module: SourceModule, call: ast.Call) -> ast.expr | None:
    """Return the name that the variable, or a list of such, is kept under."""
    below: ast.AST = call
    place: int | None = None
    for above in module.ancestors(call):
        match above:
            case ast.Assign(targets=[ast.Tuple(elts=names)]) if place is not None and place < len(names):
                return names[place]
            case ast.Assign(targets=[name, *_]):
                return name
            case ast.Call() if below is not above.func:
                return None
            case ast.Tuple():
                place = above.elts.index(below)  # type: ignore[arg-type]
            case ast.stmt():
                return None
        below = above
    return None
