# SPDX-License-Identifier: Apache-2.0
"""pack_padded_sequence with lengths in any order."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, forwards_all, seen_through


class LengthsUnsorted(SourceCheck):
    """Sequences are packed without enforce_sorted=False by lengths that nothing sorts.

    Why: torch raises RuntimeError unless the lengths fall; sorting by hand gets the labels out of step.

    Bad:
        from torch.nn.utils.rnn import pack_padded_sequence

        packed = pack_padded_sequence(x, lengths.cpu())  # here

    Good:
        from torch.nn.utils.rnn import pack_padded_sequence

        packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)

    Fix: enforce_sorted=False, and lengths on the CPU.
    """

    code = "DATA011"
    words = ("pack_padded_sequence",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a pack in a program that sorts nothing."""
        sorts = module.called_anywhere("sort", "argsort", "topk", "torch.sort", "sorted", "numpy.argsort")
        for call in module.calls("torch.nn.utils.rnn.pack_padded_sequence"):
            if argument(call, 3, "enforce_sorted") is not None or sorts or forwards_all(call):
                continue
            if not _fall(seen_through(module, argument(call, 1, "lengths"))):
                yield At(call, "The lengths must fall, and nothing in sight sorts them.", RISK)


def _fall(lengths: ast.expr | None) -> bool:
    """Tell lengths that are written out, each at most the one before it."""
    parts = [constant(each) for each in lengths.elts] if isinstance(lengths, ast.List | ast.Tuple) else []
    numbers = [each for each in parts if isinstance(each, int)]
    return bool(parts) and len(numbers) == len(parts) and numbers == sorted(numbers, reverse=True)
