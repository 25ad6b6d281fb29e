# SPDX-License-Identifier: Apache-2.0
"""Classes counted over one output."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, origins

OPERATIONS = {"argmax": 1, "softmax": 1, "log_softmax": 1}
LAYERS = ("torch.nn.Softmax", "torch.nn.LogSoftmax")


class OneOutputAsClasses(SourceCheck):
    """softmax or argmax runs over the classes of a model that has one output.

    Why: a softmax over one number is always 1, an argmax always 0: every prediction is the same.

    Bad:
        scorer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        predictions = scorer(x).argmax(1)  # here

    Good:
        scorer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        predictions = (scorer(x) > 0).long().squeeze(1)

    Fix: a sigmoid, or `> 0` on the logit; or two outputs.
    """

    code = "LOSS023"
    words = ("softmax", "argmax", "Softmax")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the operation on what can be seen to end in a linear layer with one output."""
        for call in module.all(ast.Call):
            name = module.qualify(call.func) or ""
            short = name.rsplit(".", 1)[-1] if name.startswith("torch.") else getattr(call.func, "attr", "")
            if short in OPERATIONS:
                yield from self._operation(module, call, short, name.startswith("torch."))
            elif name == "torch.nn.Sequential":
                yield from self._layers(module, call)

    def _operation(self, module: SourceModule, call: ast.Call, short: str, free: bool) -> Iterator[At]:
        given = call.args[0] if free and call.args else getattr(call.func, "value", None)
        dim = argument(call, 1 if free else 0, "dim")
        if given is not None and constant(dim) in (1, -1) and _ends_in_one(module, given):
            yield At(
                call,
                f"The model has one output: this {short} is always {'1' if short == 'softmax' else '0'}.",
            )

    def _layers(self, module: SourceModule, call: ast.Call) -> Iterator[At]:
        names = [module.qualify(each.func) if isinstance(each, ast.Call) else None for each in call.args]
        for index, name in enumerate(names[1:], 1):
            before = call.args[index - 1]
            if name in LAYERS and isinstance(before, ast.Call) and _gives_one(module, before):
                yield At(call.args[index], "A softmax over one output is always 1: use nn.Sigmoid().")


def _gives_one(module: SourceModule, layer: ast.Call) -> bool:
    return (
        module.qualify(layer.func) == "torch.nn.Linear" and constant(argument(layer, 1, "out_features")) == 1
    )


def _ends_in_one(module: SourceModule, given: ast.expr) -> bool:
    """Follow a value to the model that made it, and that to its last layer."""
    found = list(origins(module, given)) if isinstance(given, ast.Name) else [given]
    return bool(found) and all(
        isinstance(each, ast.Call) and _model_gives_one(module, each) for each in found
    )


def _model_gives_one(module: SourceModule, applied: ast.Call) -> bool:
    owner = module.class_of(applied.func)
    forward = module.method(owner, "forward") if owner is not None else None
    if forward is not None and not isinstance(forward, ast.Lambda):
        values = [each.value for each in module.returns(forward)]
        return bool(values) and all(
            isinstance(each, ast.Call) and _layer_gives_one(module, each.func) for each in values
        )
    return _layer_gives_one(module, applied.func)


def _layer_gives_one(module: SourceModule, layer: ast.expr) -> bool:
    made = module.definitions(layer)
    if len(made) != 1 or not isinstance(made[0], ast.Call):
        return False
    last = made[0]
    if (
        module.qualify(last.func) == "torch.nn.Sequential"
        and last.args
        and isinstance(last.args[-1], ast.Call)
    ):
        last = last.args[-1]
    return _gives_one(module, last)
