# SPDX-License-Identifier: Apache-2.0
"""register_backward_hook."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, rename_attribute


class BackwardHook(SourceCheck):
    """register_backward_hook is used.

    Why: deprecated; for a module of several operations it sees the gradients of the last operation only.

    Bad:
        handle = net.register_backward_hook(print)  # here

    Good:
        handle = net.register_full_backward_hook(print)

    Fix: register_full_backward_hook.

    Evidence: qfgaohao/pytorch-ssd 7a839cbc vision/prunning/prunner.py:163; qfgaohao/pytorch-ssd 7a839cbc
    vision/prunning/prunner.py:214; corpus, 186 repositories, beds B, D, K: 14 true, 3 debatable, 0 false.
    """

    code = "OLD009"
    rewrites = "safe"
    words = ("register_backward_hook",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call."""
        for call in module.method_calls("register_backward_hook"):
            tests = [each.test for each in module.inside(module.scope(call), ast.If)]
            if any("register_full_backward_hook" in ast.unparse(each) for each in tests):
                continue  # only where torch has no other
            yield At(
                call,
                "register_backward_hook is deprecated: it may see other gradients than the module's.",
                RISK,
            )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Write the name of today."""
        return [rename_attribute(module, node.func, "register_full_backward_hook")]
