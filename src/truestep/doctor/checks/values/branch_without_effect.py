# SPDX-License-Identifier: Apache-2.0
"""`if x.dim() == 1: x = x`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.uses import arms


class BranchWithoutEffect(SourceCheck):
    """A branch gives a variable its own value.

    Why: whatever the test asks for is left as it was: a shape that should be changed then broadcasts.

    Bad:
        advantages = x.sum(1)
        if advantages.dim() == 1:
            advantages = advantages  # here
        loss = (net(x) * advantages).mean()

    Good:
        advantages = x.sum(1)
        if advantages.dim() == 1:
            advantages = advantages.unsqueeze(1)
        loss = (net(x) * advantages).mean()

    Fix: write what the branch is for, or delete it.
    """

    code = "VALUE006"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an `if` without `else` all of whose statements assign something to itself."""
        for node in module.all(ast.If) if "torch" in module.text else ():
            _, body, orelse = arms(node)
            if body and not orelse and all(_is_same(each) for each in body):
                yield At(body[0], "The branch changes nothing: the variable is given its own value.", RISK)


def _is_same(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    return ast.unparse(node.targets[0]) == ast.unparse(node.value)
