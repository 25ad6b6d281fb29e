# SPDX-License-Identifier: Apache-2.0
"""stft without return_complex."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, set_keyword
from truestep.doctor.source.value_origins import argument, has_star_args, literal


class StftWithoutComplex(SourceCheck):
    """torch.stft is called without return_complex.

    Why: torch raises RuntimeError.

    Bad:
        S = torch.stft(wav, 16, 4).abs()  # here

    Good:
        S = torch.stft(wav, 16, 4, window=torch.hann_window(16), return_complex=True).abs()

    Fix: return_complex=True, and a window.

    Evidence: 186 repositories, beds C, D, U, X: 8 true, 4 debatable, 0 false.
    """

    code = "OLD010"
    gone_since = (2, 0)
    words = ("stft",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call without it."""
        methods = [each for each in module.method_calls("stft") if _is_tensor_stft_call(module, each)]
        for call in [*module.calls("torch.stft"), *methods]:
            if argument(call, None, "return_complex") is None and not has_star_args(call):
                yield At(call, "return_complex is missing: this raises RuntimeError.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Ask for complex numbers."""
        return [set_keyword(module, node, "return_complex", "True")]


def _is_tensor_stft_call(module: SourceModule, call: ast.Call) -> bool:
    """Tell `wave.stft(512)`: what is given is the size of a window, and no layer or object of that name takes the wave."""
    assert isinstance(call.func, ast.Attribute)
    size = literal(module, argument(call, 0, "n_fft"))
    owner = call.func.value
    own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
    return (
        isinstance(size, int)
        and not own
        and module.qualify(call.func) is None
        and module.classes.of(owner) is None
    )
