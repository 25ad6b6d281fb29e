# SPDX-License-Identifier: Apache-2.0
"""Layers skipped at random under DDP."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, walk
from truestep.doctor.source.value_origins import argument, literal

DRAWS = functions("draws a number", "draws by sizes")
MAX_DEPTH = 3  # from a model to its parts, and from a test to what is drawn


class LayerDropUnderDdp(SourceCheck):
    """Layers are skipped at random in forward, and the model is wrapped in DistributedDataParallel.

    Why: DDP waits for the gradients of the skipped layer: the next forward raises; if one rank skips
    alone, ranks disagree.

    Bad:
        class Stack(nn.Module):
            def forward(self, x):
                for layer in self.layers:
                    if self.training and random.random() < 0.1:  # here
                        continue
                    x = layer(x)
                return x

        net = DDP(Stack())

    Good:
        class Stack(nn.Module):
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x

        net = DDP(Stack())

    Fix: find_unused_parameters=True with the same draw on all ranks, or add 0 * sum(p.sum() for p in ...)
    to the loss.

    Evidence: the plain form of row 94 of docs/mistakes.md.
    """

    code = "DIST006"
    words = ("DDP", "DistributedDataParallel")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a random condition around a continue, in a wrapped class."""
        for wrap in module.calls("torch.nn.parallel.DistributedDataParallel"):
            owner = module.classes.of(wrap.args[0]) if wrap.args else None
            if owner is None or literal(module, argument(wrap, None, "find_unused_parameters")) is True:
                continue
            for node in (
                each for part in _component_classes(module, owner) for each in module.inside(part, ast.If)
            ):
                if _is_random_condition(module, node.test) and _skips_layer(module, node):
                    yield At(node, "A layer that is skipped gets no gradient, for which DDP waits.")


def _component_classes(module: SourceModule, owner: Class) -> list[Class]:
    """Return a class, its bases, and the classes of what they are made of."""

    def instantiated_classes(each: Class) -> list[Class]:
        calls = [call for base in module.classes.lineage(each) for call in module.inside(base, ast.Call)]
        return [part for call in calls if (part := module.classes.named(call.func)) is not None]

    found = [
        base
        for each in walk_each_once([owner], instantiated_classes, MAX_DEPTH)
        for base in module.classes.lineage(each)
    ]
    return list(dict.fromkeys(found))


def _is_random_condition(module: SourceModule, test: ast.expr) -> bool:
    """Tell a test that asks a random number, be it by names."""

    def sources(each: ast.expr) -> list[ast.expr]:
        names = [part for part in walk(each) if isinstance(part, ast.Name)]
        return [value for name in names for value in module.definitions(name) if value is not None]

    parts = [part for each in walk_each_once([test], sources, MAX_DEPTH) for part in walk(each)]
    return any(isinstance(each, ast.Call) and module.qualify(each.func) in DRAWS for each in parts)


def _skips_layer(module: SourceModule, node: ast.If) -> bool:
    """Tell `continue`, and the loop's layer that is applied in this arm alone."""
    loop = module.loop(node)
    if not isinstance(loop, ast.For):
        return False
    if any(isinstance(each, ast.Continue) for each in node.body):
        return True
    layers = {each.id for each in walk(loop.target) if isinstance(each, ast.Name)}
    applied = [each.func for part in node.body for each in module.inside(part, ast.Call)]
    elsewhere = [each.func for part in node.orelse for each in module.inside(part, ast.Call)]
    names = {each.id for each in applied if isinstance(each, ast.Name)} & layers
    return bool(names) and not any(isinstance(each, ast.Name) and each.id in names for each in elsewhere)
