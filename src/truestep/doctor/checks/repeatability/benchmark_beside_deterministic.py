# SPDX-License-Identifier: Apache-2.0
"""cudnn.benchmark beside deterministic."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, removed
from truestep.doctor.source.uses import in_other_arms


class BenchmarkBesideDeterministic(SourceCheck):
    """cudnn.benchmark is switched on beside cudnn.deterministic.

    Why: the auto-tuner picks the fastest algorithm anew in each run: results differ although each one is
    deterministic.

    Bad:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = True  # here

    Good:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False

    Fix: benchmark only for speed, with fixed shapes, where repeatability does not matter.

    Evidence: bed B: 1 true, 0 false; 186 repositories: 7 true, 1 false.
    """

    code = "SEED003"
    words = ("benchmark",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report both set to True in one function."""
        set_true: dict[str, ast.Assign] = {}
        for node in module.all(ast.Assign):
            name = module.qualify(node.targets[0]) or ""
            if (
                name.startswith("torch.backends.cudnn.")
                and isinstance(node.value, ast.Constant)
                and node.value.value is True
            ):
                set_true[name.rsplit(".", 1)[-1]] = node
        first, second = set_true.get("deterministic"), set_true.get("benchmark")
        if first is None or second is None or module.scope(first) is not module.scope(second):
            return
        if not in_other_arms(module, first, second):
            yield At(
                second, "The auto-tuner chooses anew in each run, although deterministic is asked for.", RISK
            )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the auto-tuner."""
        return [removed(module, node)]
