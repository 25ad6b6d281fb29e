# SPDX-License-Identifier: Apache-2.0
"""A hook registered again and again."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.training_actions import REMOVE_HOOK

REGISTER = (
    "register_hook",
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_backward_hook",
)


class HookAddedEveryStep(SourceCheck):
    """A hook is registered in a loop over batches and never removed.

    Why: after n steps it runs n times: outputs are stored n-fold, gradients scaled again and again.

    Bad:
        for x in loader:
            net.fc.weight.register_hook(lambda g: g * 0.5)  # here
            net(x).sum().backward()

    Good:
        handle = net.fc.weight.register_hook(lambda g: g * 0.5)
        for x in loader:
            net(x).sum().backward()
        handle.remove()

    Fix: register once, before the loop; remove the handle in a finally.

    Evidence: the plain form in snippet 28 of the notes.
    """

    code = "GRAD016"
    never = (REMOVE_HOOK,)
    words = ("register_",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it in a loop that applies or goes backward, on something the loop did not make."""
        for call in module.method_calls(*REGISTER):
            loop = module.enclosing(call, ast.For, ast.While)
            if (
                loop is None
                or module.scope(loop) is not module.scope(call)
                or not isinstance(module.parents[call], ast.Expr)
            ):
                continue
            assert isinstance(call.func, ast.Attribute)
            root = (dotted_name(call.func.value) or "").split(".")[0]
            made = {
                node.id
                for node in walk(loop)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            works = any(
                isinstance(n, ast.Call)
                and isinstance(n.func, ast.Attribute)
                and n.func.attr in ("backward", "step")
                for n in walk(loop)
            )
            if root and root not in made and works:
                yield At(call, "One more hook is added in every iteration.")
