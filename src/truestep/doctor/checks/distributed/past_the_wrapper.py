# SPDX-License-Identifier: Apache-2.0
"""A call that DDP does not see."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.loss_modules import is_without_grad
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, node_text, replace_node

HARMLESS = {
    "state_dict",
    "load_state_dict",
    "parameters",
    "named_parameters",
    "modules",
    "train",
    "eval",
    "to",
    "buffers",
    "cuda",
    "cpu",
}


class PastTheWrapper(SourceCheck):
    """The module inside of DistributedDataParallel is called directly in training.

    Why: only the wrapper's own forward prepares the sum over the ranks: each rank keeps its local
    gradients, silently.

    Bad:
        net = DDP(net)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net.module(x), y).backward()  # here
            opt.step()

    Good:
        net = DDP(net)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: call the wrapper; put other methods behind forward(mode=...).

    Evidence: the plain form of row 94 of docs/mistakes.md; bed P: 2 true, 1 debatable, 0 false.
    """

    code = "DIST005"
    words = (".module",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `ddp.module(...)` and its methods, outside of no_grad, in a training loop."""
        for trace in module.traces:
            for loop in trace.training_loops():
                for call in walk(loop.node):
                    if (
                        isinstance(call, ast.Call)
                        and self._is_wrapped_module_access(module, call.func)
                        and not is_without_grad(module, call)
                    ):
                        yield At(
                            call, "The wrapped module is called past DDP: gradients stay local to each rank."
                        )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Call the wrapper."""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "module"):
            raise SourceRewriteError
        return [replace_node(module, node.func, node_text(module, node.func.value))]

    def _is_wrapped_module_access(self, module: SourceModule, function: ast.expr) -> bool:
        node = function
        if isinstance(node, ast.Attribute) and node.attr != "module":
            if node.attr in HARMLESS or node.attr.startswith(("register_", "_")):
                return False
            node = node.value
        return isinstance(node, ast.Attribute) and node.attr == "module" and module.kind(node.value) == "ddp"
