# SPDX-License-Identifier: Apache-2.0
"""Which losses torch has: what their targets and inputs are, and the layers that compute them.

`tests/doctor/test_library.py` holds the columns to what torch does.
"""

from functools import cache
from typing import NamedTuple

# target    classes: indices · shares: probabilities, as float · numbers: any, one for each output
# given     scores: of any size · shares: probabilities · log-shares: their logarithms · numbers: any
# whole     refused: targets that are whole numbers, of the input's shape, raise · taken
_TABLE = """
cross_entropy                     classes  scores      refused  CrossEntropyLoss
nll_loss                          classes  log-shares  refused  NLLLoss
multi_margin_loss                 classes  scores      refused  MultiMarginLoss
binary_cross_entropy              shares   shares      refused  BCELoss
binary_cross_entropy_with_logits  shares   scores      refused  BCEWithLogitsLoss
kl_div                            shares   log-shares  refused  KLDivLoss
mse_loss                          numbers  numbers     taken    MSELoss
l1_loss                           numbers  numbers     taken    L1Loss
smooth_l1_loss                    numbers  numbers     taken    SmoothL1Loss
huber_loss                        numbers  numbers     refused  HuberLoss
gaussian_nll_loss                 numbers  means       taken    GaussianNLLLoss
poisson_nll_loss                  numbers  rates       taken    PoissonNLLLoss
"""


class KnownLoss(NamedTuple):
    """One row."""

    function: str
    target: str
    given: str
    whole: str
    layer: str


LOSSES = tuple(KnownLoss(*line.split()) for line in _TABLE.strip().splitlines())


@cache
def loss_function_names(*, target: str = "", given: str = "", whole: str = "") -> tuple[str, ...]:
    """Return the functions that have one of these values in each column that is asked for."""
    wanted = {"target": target, "given": given, "whole": whole}
    asked = {column: values.split() for column, values in wanted.items() if values}
    return tuple(
        each.function
        for each in LOSSES
        if all(getattr(each, column) in values for column, values in asked.items())
    )
