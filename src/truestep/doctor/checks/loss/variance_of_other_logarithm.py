# SPDX-License-Identifier: Apache-2.0
"""A Gaussian formula in which the logarithm and the variance don't belong together."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.sums_of_powers import Power, powers_in


class VarianceOfOtherLogarithm(SourceCheck):
    """The divergence or likelihood of a Gaussian adds k * log s, and has another power of s than k where its variance stands.

    Why: exp(logstd) is the deviation, exp(2 * logstd) the variance: with the wrong one the least divergence is no longer
    at the standard Gaussian, and the latents settle at a wrong spread.

    Bad:
        mean, logstd = net(x), net(x + 1)
        kl = -0.5 * (1 + 2 * logstd - mean**2 - torch.exp(logstd)).sum(1).mean()  # here

    Good:
        mean, logstd = net(x), net(x + 1)
        kl = -0.5 * (1 + 2 * logstd - mean**2 - torch.exp(2 * logstd)).sum(1).mean()

    Fix: 1 + logvar - mean**2 - exp(logvar), or 1 + 2 * logstd - mean**2 - exp(2 * logstd).
    """

    code = "LOSS055"
    words = ("exp", "log")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum of powers with a logarithm, a square and that logarithm's exponential, in which the numbers don't fit."""
        for node in module.all(ast.BinOp):
            above = module.parents[node]
            inner = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add | ast.Sub)
            if inner or not isinstance(node.op, ast.Add | ast.Sub):
                continue
            text = ast.unparse(node)
            if "exp" not in text and "log" not in text and "2" not in text:
                continue
            found = _mismatch(powers_in(module, node))
            if found is not None:
                yield At(node, found)


def _mismatch(powers: list[Power] | None) -> str | None:
    """Say what is wrong with a divergence, or with a likelihood, whose terms are these."""
    for log in powers or ():
        symbol = log.is_logarithm_of()
        if symbol is None or powers is None:
            continue
        others = [each for each in powers if each is not log]
        wrong = _in_divergence(log, symbol, others) or _in_likelihood(log, symbol, others)
        if wrong is not None:
            has, wanted = wrong
            return f"The logarithm says that the variance is the power {wanted:g} of {symbol}, and here stands the power {has:g}."
    return None


def _in_divergence(log: Power, symbol: str, others: list[Power]) -> tuple[float, float] | None:
    """`a + k * log s - a * m**2 - a * s**q`: q is to be k / a."""
    numbers = [each.factor for each in others if not each.bases]
    spreads = [each for each in others if set(each.bases) == {symbol}]
    squares = [each for each in others if list(each.bases.values()) == [2] and symbol not in each.bases]
    if len(others) != 3 or len(numbers) != 1 or len(spreads) != 1 or len(squares) != 1 or not numbers[0]:
        return None
    if spreads[0].factor != -numbers[0] or squares[0].factor != -numbers[0]:
        return None
    has, wanted = spreads[0].bases[symbol], log.factor / numbers[0]
    return (has, wanted) if wanted > 0 and has > 0 and abs(has - wanted) > 1e-9 else None


def _in_likelihood(log: Power, symbol: str, others: list[Power]) -> tuple[float, float] | None:
    """`k * log s + b * (x - m)**2 / s**q`: q is to be k / b."""
    fits = [each for each in others if each.bases.get(symbol, 0) < 0 and 2 in each.bases.values()]
    rest = [each for each in others if each.bases and each not in fits]
    if len(fits) != 1 or rest or len(fits[0].bases) != 2 or not fits[0].factor:
        return None
    difference = next(name for name in fits[0].bases if name != symbol)
    has, wanted = -fits[0].bases[symbol], log.factor / fits[0].factor
    return (has, wanted) if " - " in difference and wanted > 0 and abs(has - wanted) > 1e-9 else None
