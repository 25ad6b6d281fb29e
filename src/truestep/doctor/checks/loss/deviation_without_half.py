# SPDX-License-Identifier: Apache-2.0
"""A variance used as a standard deviation."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import value_origins

_LOG_VARIANCE = re.compile(r"^(\w*_)?(log_?var(iance)?|lv|log_?sigma_?(2|sq|squared))(_\w+)?$", re.IGNORECASE)
_NOISE = ("torch.randn", "torch.randn_like")


class DeviationWithoutHalf(SourceCheck):
    """Noise is multiplied with exp(logvar), which is the variance, and not with its root.

    Why: samples are drawn with another distribution than the one whose divergence the loss computes.

    Bad:
        def sample(mu, logvar):
            std = torch.exp(logvar)
            return mu + torch.randn_like(std) * std  # here

    Good:
        def sample(mu, logvar):
            std = torch.exp(0.5 * logvar)
            return mu + torch.randn_like(std) * std

    Fix: torch.exp(0.5 * logvar).
    """

    code = "LOSS045"
    words = ("logvar", "log_var", "log_sigma", "lv")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a product of normal noise and the exponential of what is called a log variance, in a sum."""
        for product in module.all(ast.BinOp):
            if isinstance(product.op, ast.Mult) and _is_summed(module, product):
                for noise, scale in ((product.left, product.right), (product.right, product.left)):
                    if _is_noise(module, noise) and _is_variance(module, scale):
                        yield At(
                            product, "exp(log variance) is the variance; noise is scaled by its root.", RISK
                        )


def _is_summed(module: SourceModule, product: ast.BinOp) -> bool:
    parent = module.parents[product]
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add)


def _is_noise(module: SourceModule, node: ast.expr) -> bool:
    made = list(value_origins(module, node))
    return bool(made) and all(
        isinstance(each, ast.Call) and module.qualify(each.func) in _NOISE for each in made
    )


def _is_variance(module: SourceModule, node: ast.expr) -> bool:
    made = list(value_origins(module, node))
    return bool(made) and all(_is_exponential(module, each) for each in made)


def _is_exponential(module: SourceModule, node: ast.expr | None) -> bool:
    """Tell `exp(logvar)` and `logvar.exp()`."""
    if not isinstance(node, ast.Call):
        return False
    free = module.qualify(node.func) == "torch.exp"
    method = isinstance(node.func, ast.Attribute) and node.func.attr in ("exp", "exp_")
    inner = node.args[0] if free and node.args else node.func.value if method and not free else None  # type: ignore[attr-defined]
    name = (dotted(inner) or "").rsplit(".", 1)[-1] if inner is not None else ""
    return bool(_LOG_VARIANCE.match(name))
