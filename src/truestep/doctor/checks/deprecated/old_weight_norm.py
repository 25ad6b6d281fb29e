# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.weight_norm."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, name_of, replaced


class OldWeightNorm(SourceCheck):
    """torch.nn.utils.weight_norm is used.

    Why: deprecated; deepcopy of such a module raises, and applying it twice does.

    Bad:
        layer = nn.utils.weight_norm(nn.Conv1d(3, 8, 5))  # here

    Good:
        layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 8, 5))

    Fix: torch.nn.utils.parametrizations.weight_norm (it loads old checkpoints).

    Evidence: the plain form in snippet 25 of the notes; 186 repositories: said 229 times, not judged.
    """

    code = "OLD006"
    rewrites = "safe"
    words = ("weight_norm",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call."""
        for call in module.calls("torch.nn.utils.weight_norm", "torch.nn.utils.remove_weight_norm"):
            yield At(call, "This weight_norm is deprecated: use parametrizations.weight_norm.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take the parametrization."""
        if module.qualify(node.func) != "torch.nn.utils.weight_norm":
            raise SourceRewriteError
        utils = name_of(module, "torch.nn.utils")
        return [replaced(module, node.func, f"{utils}.parametrizations.weight_norm")]
