# SPDX-License-Identifier: Apache-2.0
import re

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import format_shape_tuple


class OneValuePerChannel(Explainer):
    """Batch norm gets a batch of one value per channel while it trains.

    Means: in training batch norm divides by the deviation within the batch, and one value has none.

    Raises:
        norm = nn.BatchNorm1d(3)
        norm(torch.zeros(1, 3))

    Works:
        norm = nn.BatchNorm1d(3).eval()
        norm(torch.zeros(1, 3))

    Fix: in training pass drop_last=True to the loader (the last batch has one sample) or take batches of two and more;
    for prediction call model.eval() first; after global pooling use GroupNorm.

    Cases:
        otherwise: {layer} is in training mode and got an input of shape {shape}.
    """

    messages = (
        r"Expected more than 1 .* when training, got input size (?P<size>torch.Size\(\[[\d, ]*\]\)|[\d, \[\]()]*)",
    )
    checks = ("DATA018",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        return {"shape": format_shape_tuple(tuple(int(size) for size in re.findall(r"\d+", match["size"])))}
