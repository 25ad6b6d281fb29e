# SPDX-License-Identifier: Apache-2.0
"""What a buffer that several processes fill, each from its own examples, is of their values."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from truestep.core.errors import OptionError, names_hint

BufferRule = Literal["mean", "sum", "own"]
BUFFER_RULES: tuple[BufferRule, ...] = ("mean", "sum", "own")


def buffer_rules_of(module: nn.Module, said: Mapping[str, BufferRule] | None) -> dict[str, BufferRule]:
    """Return by its name what becomes of each buffer that is not to come out the same on all ranks by itself."""
    names = [name for name, _ in module.named_buffers()]
    rules: dict[str, BufferRule] = {}
    for prefix, part in module.named_modules():
        if isinstance(part, nn.modules.instancenorm._InstanceNorm):
            # its statistics are means over the examples
            rules |= {f"{prefix}.{name}" if prefix else name: "mean" for name in part._buffers}
    for pattern, rule in (said or {}).items():
        found = [name for name in names if fnmatchcase(name, pattern)]
        if rule not in BUFFER_RULES or not found:
            raise OptionError(
                f"run.learner(buffers={{{pattern!r}: {rule!r}}}): give the name of a buffer (or a pattern, '*.counts') and what it "
                f"is of the ranks' values: 'mean' over the examples, 'sum' of what each rank added, or each rank's 'own'. "
                f"{'' if found else names_hint(pattern, names)}"
            )
        rules |= dict.fromkeys(found, rule)
    return rules
