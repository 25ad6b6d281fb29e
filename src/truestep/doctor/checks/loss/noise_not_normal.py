# SPDX-License-Identifier: Apache-2.0
"""Uniform noise where a normal distribution is sampled."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import constant, value_origins

_DEVIATION = re.compile(r"(^|_)(std|stds|sigma|stdev|stddev)(_|\d|$)", re.IGNORECASE)
_TEXT = "This noise is uniform between 0 and 1, not normal: randn is meant."


class NoiseNotNormal(SourceCheck):
    """mean + deviation * noise is computed with torch.rand, uniform between 0 and 1.

    Why: the noise has mean 0.5 instead of 0 and a third of the deviation: the latent variable isn't the
    one whose divergence the loss computes.

    Bad:
        def sample(mu, logvar):
            std = torch.exp(0.5 * logvar)
            eps = torch.rand_like(std)
            return mu + eps * std  # here

    Good:
        def sample(mu, logvar):
            std = torch.exp(0.5 * logvar)
            eps = torch.randn_like(std)
            return mu + eps * std

    Fix: torch.randn_like, with an n.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/085/main.py:31; 186 repositories, beds A, F,
    K, L, P: 11 true, 0 false.
    """

    code = "LOSS030"
    words = ("rand",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum with a product of uniform noise and an exponential of half a number."""
        for node in module.all(ast.BinOp):
            if isinstance(node.op, ast.Add):
                for each in (node.left, node.right):
                    if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult):
                        yield from self._check_noise_product(module, each)

    def _check_noise_product(self, module: SourceModule, product: ast.BinOp) -> Iterator[At]:
        for noise, deviation in ((product.left, product.right), (product.right, product.left)):
            if not self._is_uniform_noise(module, noise):
                continue
            if self._is_deviation(module, deviation):
                yield At(product, _TEXT)
            elif _is_returned_with_mean(module, product, deviation):
                yield At(product, _TEXT, RISK)

    def _is_uniform_noise(self, module: SourceModule, node: ast.expr) -> bool:
        made = [each for each in value_origins(module, node) if isinstance(each, ast.Call)]
        return bool(made) and all(
            module.qualify(each.func) in ("torch.rand", "torch.rand_like") for each in made
        )

    def _is_deviation(self, module: SourceModule, node: ast.expr) -> bool:
        """Tell `exp(0.5 * logvar)`, `exp(logvar / 2)`, `logvar.mul(0.5).exp()`, and the root of `1 - x`."""
        for each in value_origins(module, node):
            if _is_root_of_one_minus(module, each):
                return True
            if isinstance(each, ast.Call):
                text = ast.unparse(each)
                is_exp = module.qualify(each.func) == "torch.exp" or text.endswith((".exp()", ".exp_()"))
                if is_exp and ("0.5" in text or "/ 2" in text or "div(2" in text):
                    return True
        return False


def _is_root_of_one_minus(module: SourceModule, node: ast.expr | None) -> bool:
    """Tell `(1 - alpha).sqrt()`, by which a diffusion weights its noise."""
    inner = _argument_of_root(module, node)
    made = [inner, *value_origins(module, inner)] if inner is not None else []
    return any(_subtrahend_from_one(each) is not None for each in made)


def _is_returned_with_mean(module: SourceModule, product: ast.BinOp, deviation: ast.expr) -> bool:
    """Tell `mean + noise * std` where one call gave both, and the second is called a deviation."""
    total = module.parents[product]
    assert isinstance(total, ast.BinOp)
    mean = total.left if total.right is product else total.right
    if (
        not isinstance(mean, ast.Name)
        or not isinstance(deviation, ast.Name)
        or not _DEVIATION.search(deviation.id)
    ):
        return False
    first, second = (module.resolver.reaching(each) for each in (mean, deviation))
    return bool(first) and {each.node for each in first} == {each.node for each in second}


def _argument_of_root(module: SourceModule, node: ast.expr | None) -> ast.expr | None:
    """Return x of `torch.sqrt(x)`, `x.sqrt()` and `x ** 0.5`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and constant(node.right) == 0.5:
        return node.left
    if not isinstance(node, ast.Call):
        return None
    if module.qualify(node.func) == "torch.sqrt":
        return node.args[0] if node.args else None
    return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "sqrt" else None


def _subtrahend_from_one(node: ast.expr | None) -> ast.expr | None:
    """Return x of `1 - x`."""
    is_difference = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return node.right if is_difference and constant(node.left) in (1, 1.0) else None  # type: ignore[union-attr]
