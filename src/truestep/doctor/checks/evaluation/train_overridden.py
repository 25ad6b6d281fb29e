# SPDX-License-Identifier: Apache-2.0
"""A train() that does not take the mode."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class TrainOverridden(SourceCheck):
    """A module overrides train() without its `mode`, or never passes it on.

    Why: eval() calls train(False): with an own train(self) it raises TypeError, or leaves the children in
    training mode.

    Bad:
        class Net(nn.Module):
            def train(self):  # here
                for layer in self.children():
                    layer.train()

    Good:
        class Net(nn.Module):
            def train(self, mode=True):
                super().train(mode)
                self.frozen.eval()
                return self

    Fix: def train(self, mode=True): super().train(mode); ...; return self. A loop is better called fit().

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/main.py:44;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/original_code_snippet.py:34; beds O, U: 0 true, 3
    debatable, 1 false.
    """

    code = "EVAL009"
    words = ("def train", "def eval")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a train() of a module that has no parameter for the mode."""
        for owner in module.kinds.classes_of("module"):
            named = {each.name for each in owner.body if isinstance(each, ast.FunctionDef)}
            for node in owner.body if "eval" not in named else []:  # which then need not call train()
                if isinstance(node, ast.FunctionDef) and node.name == "train" and not self._takes_mode(node):
                    asked = any(
                        _is_eval_called_on(module.home(each), owner, each)
                        for each in module.program.called_anywhere("eval")
                    )
                    text = f"{owner.name}.train() does not take `mode`: eval() calls train(False)."
                    yield At(node, text, BUG if asked else ADVICE)

    def _takes_mode(self, node: ast.FunctionDef) -> bool:
        required = len(node.args.args) - len(node.args.defaults)
        fits = len(node.args.args) >= 2 and required <= 2  # eval() gives it self and the mode
        return fits or node.args.vararg is not None or bool(node.decorator_list)


def _is_eval_called_on(module: SourceModule, owner: ast.ClassDef, call: ast.Call) -> bool:
    """Tell `net.eval()` of such a module, or of one that makes it."""
    known = module.classes.of(call.func.value) if isinstance(call.func, ast.Attribute) else None
    if known is None or call.args:
        return False
    makes = any(module.classes.named(each.func) is owner for each in module.inside(known, ast.Call))
    return makes or owner in module.classes.lineage(known)
