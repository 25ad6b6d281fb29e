# SPDX-License-Identifier: Apache-2.0
"""Packed with batch_first, unpacked without."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, given_to, method_of
from truestep.doctor.source.values import argument, constant, forwards_all, literal

PACK = "torch.nn.utils.rnn.pack_padded_sequence"
UNPACK = "torch.nn.utils.rnn.pad_packed_sequence"
_TURNS = operations(shape="turned")


class SequenceAxesExchanged(SourceCheck):
    """Sequences are packed with batch_first=True and unpacked without it, or the other way round.

    Why: the result is (time, batch, features) where (batch, time, features) is expected, silently.

    Bad:
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(packed)  # here

    Good:
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(packed, batch_first=True)

    Fix: the same batch_first in both.

    Evidence: the plain form of row 80 of docs/mistakes.md; 186 repositories, beds B, M, U: 0 true, 1 debatable,
    3 false.
    """

    code = "DATA010"
    words = ("pad_packed_sequence",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report where all packs of a function agree and its unpack differs."""
        for call in module.calls(UNPACK):
            packs = [
                each
                for each in module.calls(PACK)
                if module.scope(each) is module.scope(call) and not forwards_all(each)
            ]
            modes = {bool(literal(module, argument(each, 2, "batch_first"))) for each in packs}
            mode = argument(call, 1, "batch_first")
            if len(modes) == 1 and not forwards_all(call) and (mode is None or constant(mode) is not None):
                packed = modes.pop()
                if packed != bool(constant(mode)) and not (
                    _is_turned(module, call) or _is_thrown_away(module, call)
                ):
                    text = f"Packed with batch_first={packed}, unpacked with batch_first={not packed}."
                    # steps first in and examples first out may be meant: the axes are turned on the way
                    yield At(call, text, RISK if packed else QUESTION)


def _is_thrown_away(module: SourceModule, unpack: ast.Call) -> bool:
    """Tell sequences that go to a name which the function reads nowhere."""
    statement = module.parents[unpack]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    padded = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    if not isinstance(padded, ast.Name) or not isinstance(scope := module.scope(unpack), Function):
        return False
    read = [each for each in module.reads(padded.id) if each in module.inside(scope, ast.Name)]
    later = [each for each in read if each.lineno > (unpack.end_lineno or 0)]
    return module.loop(unpack) is None and not later


def _is_turned(module: SourceModule, unpack: ast.Call) -> bool:
    """Tell whether all that is read of what was unpacked, but for its sizes, exchanges its first two axes."""
    reads = [each for each in _reads(module, unpack) if not _is_measured(module, each)]
    return bool(reads) and all(_turns(module, each) for each in reads)


def _reads(module: SourceModule, unpack: ast.Call) -> list[ast.expr]:
    """Return where the padded sequences are read: where they stand, or under the name that they are given."""
    above = module.parents[unpack]
    padded = above if isinstance(above, ast.Subscript) and constant(above.slice) == 0 else unpack
    kept = module.parents[padded]
    target = kept.targets[0] if isinstance(kept, ast.Assign) else None
    if isinstance(target, ast.Tuple) and target.elts and padded is unpack:
        target = target.elts[0]
    if not isinstance(target, ast.Name):
        return [padded]
    reads = [each for each in module.reads(target.id) if isinstance(each, ast.Name)]
    return [each for each in reads if any(made.value is padded for made in module.resolver.reaching(each))]


def _is_measured(module: SourceModule, read: ast.expr) -> bool:
    above = module.parents[read]
    return isinstance(above, ast.Attribute) and above.attr in ("shape", "size")


def _turns(module: SourceModule, read: ast.expr) -> bool:
    """Tell `x.transpose(0, 1)`, `x.permute(1, 0, 2)` and the functions of these names."""
    above = module.parents[read]
    call = module.parents[above] if isinstance(above, ast.Attribute) else above
    name = method_of(call) if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or name not in _TURNS:
        return False
    given = given_to(call) if isinstance(above, ast.Attribute) else given_to(call)[1:]
    parts = given[0].elts if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)) else given
    axes = [literal(module, each) for each in parts][:2]
    return axes == [1, 0] or (axes == [0, 1] and name != "permute")
