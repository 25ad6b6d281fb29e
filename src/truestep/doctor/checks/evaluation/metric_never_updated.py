# SPDX-License-Identifier: Apache-2.0
"""A metric that is read out and never given anything."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import method_of
from truestep.doctor.source.training_actions import UPDATE_METRIC

_READS_OUT = ("log", "compute", "reset")
_LIBRARY = "torchmetrics."


class MetricNeverUpdated(SourceCheck):
    """A metric of torchmetrics' is logged or computed, and the program never updates it.

    Why: it stays at its start, or another metric is updated in its place and mixes two sets of data.

    Bad:
        class Task(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.train_acc = torchmetrics.Accuracy("multiclass")
                self.valid_acc = torchmetrics.Accuracy("multiclass")

            def validation_step(self, batch, index):
                x, y = batch
                self.train_acc(self(x), y)
                self.log("valid_acc", self.valid_acc)  # here

    Good:
        class Task(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.valid_acc = torchmetrics.Accuracy("multiclass")

            def validation_step(self, batch, index):
                x, y = batch
                self.valid_acc(self(x), y)
                self.log("valid_acc", self.valid_acc)

    Fix: update the metric that is logged.

    Evidence: bed B: 1 true, 0 false.
    """

    code = "EVAL042"
    never = (UPDATE_METRIC,)
    words = ("torchmetrics",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an attribute that holds such a metric, all of whose uses in the program read it out."""
        for owner in module.named_classes:
            for name, bindings in module.classes.attributes(owner).items():
                made = [each.value for each in bindings]
                if not made or not all(_is_metric(module, each) for each in made):
                    continue
                uses = module.program.attributes_read.get(name, [])
                told = [_metric_read_call(module.home(each), each) for each in uses]
                if uses and all(each is not None for each in told):
                    logs = [
                        call for call in told if call is not None and _is_method_of_class(module, call, owner)
                    ]
                    if logs:
                        yield At(logs[0], f"{name!r} is read out, and nothing ever updates it.", BUG)


def _is_metric(module: SourceModule, node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and (module.qualify(node.func) or "").startswith(_LIBRARY)


def _metric_read_call(module: SourceModule, use: ast.Attribute) -> ast.Call | None:
    """Return `self.log("name", metric)`, `metric.compute()` or `metric.reset()` around a use."""
    parent = module.parents.get(use)
    if isinstance(parent, ast.keyword):
        parent = module.parents.get(parent)
    if isinstance(parent, ast.Attribute) and parent.attr in _READS_OUT:
        parent = module.parents.get(parent)
        return parent if isinstance(parent, ast.Call) else None
    is_log = (
        isinstance(parent, ast.Call) and getattr(parent.func, "attr", "") == "log" and parent.func is not use
    )
    return parent if is_log and isinstance(parent, ast.Call) else None


def _is_method_of_class(module: SourceModule, call: ast.Call, owner: ast.ClassDef) -> bool:
    method = method_of(call)
    return method != "reset" and module.enclosing(call, ast.ClassDef) is owner
