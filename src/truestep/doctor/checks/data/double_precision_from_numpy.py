# SPDX-License-Identifier: Apache-2.0
"""float64 from NumPy into a float32 model."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, seen_through

MAKERS = functions("makes float64")


class DoublePrecisionFromNumpy(SourceCheck):
    """A float64 array from NumPy goes through from_numpy into a module.

    Why: the model is float32: RuntimeError, "mat1 and mat2 must have the same dtype".

    Bad:
        w = torch.from_numpy(np.ones((1, 2)))
        pred = net(w)  # here

    Good:
        w = torch.tensor(np.ones((1, 2)), dtype=torch.float32)
        pred = net(w)

    Fix: torch.tensor(array, dtype=torch.float32), or .float() after from_numpy.
    """

    code = "DATA008"
    words = ("from_numpy",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a module applied to a name that is such a tensor and nothing else."""
        for call in module.all(ast.Call):
            applied = module.kind(call.func) == "module" or (
                isinstance(call.func, ast.Call) and module.kind(call.func) == "module"
            )
            if not applied or len(call.args) != 1 or not module.definitions(call.args[0]):
                continue
            values = module.definitions(call.args[0])
            if values and all(self._is_double(module, each) for each in values):
                yield At(call, "The input is NumPy's float64; the model's weights are float32.")

    def _is_double(self, module: SourceModule, value: ast.expr | None) -> bool:
        if (
            not isinstance(value, ast.Call)
            or module.qualify(value.func) != "torch.from_numpy"
            or not value.args
        ):
            return False
        inner = seen_through(module, value.args[0])
        made = isinstance(inner, ast.Call) and module.qualify(inner.func) in MAKERS
        return made and isinstance(inner, ast.Call) and argument(inner, None, "dtype") is None
