# SPDX-License-Identifier: Apache-2.0
"""Noise added by weights whose squares do not add up to one."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.roots import inner_of_root, rest_of
from truestep.doctor.source.values import value_origins


class SignalWithoutRoot(SourceCheck):
    """A diffusion mixes a * x with sqrt(1 - a) * noise: the weight of the signal has lost its square root.

    Why: the variance does not stay 1, and what is trained on is not what the sampler undoes step by step.

    Bad:
        def add_noise(x, t, alpha_bar, noise):
            a = alpha_bar[t]
            return a * x + torch.sqrt(1 - a) * noise  # here

    Good:
        def add_noise(x, t, alpha_bar, noise):
            a = alpha_bar[t]
            return torch.sqrt(a) * x + torch.sqrt(1 - a) * noise

    Fix: torch.sqrt(a) * x.
    """

    code = "LOSS048"
    words = ("sqrt", "0.5")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum of two products whose weights are a and the root of 1 - a."""
        for node in module.all(ast.BinOp):
            if not isinstance(node.op, ast.Add):
                continue
            weights = [_weights(side) for side in (node.left, node.right)]
            for plain, rooted in (weights, weights[::-1]):
                rests = [rest for each in rooted if (rest := _rest_under_root(module, each)) is not None]
                if any(ast.unparse(rest) in _texts(module, each) for rest in rests for each in plain):
                    yield At(
                        node, "The noise is weighted by the root of 1 - a, and the signal by a itself.", RISK
                    )
                    break


def _weights(node: ast.expr) -> list[ast.expr]:
    return [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else []


def _rest_under_root(module: SourceModule, node: ast.expr) -> ast.expr | None:
    """Return a of `sqrt(1 - a)`."""
    for each in value_origins(module, node):
        inner = inner_of_root(module, each)
        for value in [inner, *value_origins(module, inner)] if inner is not None else []:
            if (rest := rest_of(value)) is not None:
                return rest
    return None


def _texts(module: SourceModule, node: ast.expr) -> set[str]:
    """Return how a weight is written, here and where its name gets its value."""
    origins = [each for each in (*module.definitions(node), *value_origins(module, node)) if each is not None]
    return {ast.unparse(each) for each in [node, *origins]} if not _is_root(module, node) else set()


def _is_root(module: SourceModule, node: ast.expr) -> bool:
    return any(inner_of_root(module, each) is not None for each in value_origins(module, node))
