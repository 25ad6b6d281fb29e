# SPDX-License-Identifier: Apache-2.0
"""A closure that clears nothing."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.libraries import library_taking_over
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, walk
from truestep.doctor.source.training_actions import CLEAR


class ClosureAddsUp(SourceCheck):
    """The closure of an optimizer's step does not clear the gradients.

    Why: LBFGS calls it several times in one step: each call adds to the gradients of the one before.

    Bad:
        def closure():
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        opt = torch.optim.LBFGS(net.parameters())
        opt.step(closure)  # here
        opt.zero_grad()

    Good:
        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        opt = torch.optim.LBFGS(net.parameters())
        opt.step(closure)

    Fix: opt.zero_grad() as the closure's first line.

    Evidence: 186 repositories: 1 true, 0 false.
    """

    code = "GRAD045"
    never = (CLEAR,)
    words = (".step(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a closure in sight that reaches a backward and nothing that clears."""
        for call in module.method_calls("step"):
            given = [*call.args, *(each.value for each in call.keywords if each.arg == "closure")]
            function = module.functions.named(given[0]) if len(given) == 1 else None
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else call
            if (
                function is None
                or module.kind(receiver) not in ("optimizer", None)
                or library_taking_over(module, "zero_grad")
            ):
                continue
            said = _attribute_names_used(module, function)
            if "backward" in said and not said & {"zero_grad", "grad", "zero_grads"}:
                yield At(
                    call,
                    "The closure adds to the gradients each time it is called, and clears nothing.",
                    RISK,
                )


def _attribute_names_used(module: SourceModule, function: Function) -> set[str]:
    """Return the attributes that a function and what it calls in the program name."""
    found: set[str] = set()
    waiting, seen = [function], {function}
    while waiting:
        for node in walk(waiting.pop()):
            if isinstance(node, ast.Attribute) and (node.attr != "grad" or _is_gradient_clear(module, node)):
                found.add(node.attr)
            run = (
                {module.functions.target(node), *module.program.entered_by(node)}
                if isinstance(node, ast.Call)
                else set()
            )
            new = [each for each in run if each is not None and each not in seen]
            seen.update(new)
            waiting += new
    return found


def _is_gradient_clear(module: SourceModule, gradient: ast.Attribute) -> bool:
    """Tell `p.grad = None` and `p.grad.zero_()` from a gradient that is clipped."""
    above = module.home(gradient).parents.get(gradient)
    return isinstance(gradient.ctx, ast.Store) or getattr(above, "attr", "") in ("zero_", "data", "fill_")
