# SPDX-License-Identifier: Apache-2.0
"""no_grad() as a statement."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.evaluations import is_switch
from truestep.doctor.source.module import SourceModule

MODES = ("no_grad", "enable_grad", "inference_mode")
CONTEXTS = functions("casts within")


class NoGradWithoutWith(SourceCheck):
    """torch.no_grad() or autocast() stands as a statement of its own, without `with`.

    Why: it makes a context that nobody enters: gradients are recorded, or float32 used, as before.

    Bad:
        def predict(x):
            torch.no_grad()  # here
            return net(x).argmax(1)

    Good:
        @torch.no_grad()
        def predict(x):
            return net(x).argmax(1)

    Fix: `with torch.no_grad():` around the code, or the decorator.
    """

    code = "EVAL016"
    words = ("grad", "inference_mode", "autocast")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an expression statement that makes such a context, called or not."""
        for statement in module.all(ast.Expr):
            value = statement.value
            made = value.func if isinstance(value, ast.Call) else value
            if is_switch(module, value, *MODES) or module.qualify(made) in CONTEXTS:
                yield At(value, f"{ast.unparse(value)} has no effect without `with`.")
