# SPDX-License-Identifier: Apache-2.0
"""An onnxruntime session that may run on the CPU."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.training_actions import ASK_PROVIDERS
from truestep.doctor.source.value_origins import argument

MAX_DEPTH = 3  # from the session to the names of its providers


class ProviderFallsBack(SourceCheck):
    """An onnxruntime session asks for CUDA, and nothing looks at what it got.

    Why: with the CPU package, or without a fitting CUDA, it warns once and runs on the CPU.

    Bad:
        import onnxruntime as ort

        sess = ort.InferenceSession("m.onnx", providers=["CUDAExecutionProvider"])  # here

    Good:
        import onnxruntime as ort

        sess = ort.InferenceSession("m.onnx", providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
        assert sess.get_providers()[0] == "CUDAExecutionProvider"

    Fix: list both and assert on sess.get_providers().

    Evidence: the plain form of row 96 of docs/mistakes.md; 186 repositories, beds H, I, N, Y: 5 true, 3
    debatable, 0 false.
    """

    code = "DEV003"
    never = (ASK_PROVIDERS,)
    words = ("onnxruntime",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a session with an accelerator in its providers in a file without get_providers()."""
        if module.method_calls("get_providers"):
            return
        for call in module.calls("onnxruntime.InferenceSession"):
            providers = argument(call, 2, "providers")
            if any(_names_accelerator(each) for each in _expression_and_sources(module, providers)):
                yield At(call, "The session falls back to the CPU with a warning only.", RISK)


def _expression_and_sources(module: SourceModule, node: ast.expr | None) -> Iterator[ast.expr]:
    """Yield an expression with all that its names may stand for."""

    def sources(each: ast.expr) -> list[ast.expr]:
        names = [part for part in walk(each) if isinstance(part, (ast.Name, ast.Attribute))]
        return [value for name in names for value in module.definitions(name) if value is not None]

    return walk_each_once([node] if node is not None else [], sources, MAX_DEPTH)


def _names_accelerator(node: ast.expr) -> bool:
    return any(each in ast.unparse(node) for each in ("CUDAExec", "TensorrtExec"))
