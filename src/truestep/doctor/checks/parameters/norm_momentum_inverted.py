# SPDX-License-Identifier: Apache-2.0
"""A batch norm's momentum in another library's sense."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replace_node
from truestep.doctor.source.value_origins import argument, literal

_LAYERS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "InstanceNorm2d")


class NormMomentumInverted(SourceCheck):
    """A batch norm is given a momentum of 0.9 or more.

    Why: in torch it is the weight of the new batch, in TensorFlow that of the old mean: evaluation uses little more than the
    statistics of the last batch.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.99))  # here

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.01))

    Fix: 1 minus that number.

    Evidence: 186 repositories, beds A, B, C, F, G, K, R, S, V: 25 true, 1 debatable, 0 false.
    """

    code = "PARAM042"
    words = ("momentum",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a layer of torch."""
        for call in module.calls(*(f"torch.nn.{each}" for each in _LAYERS)):
            momentum = literal(module, argument(call, 2, "momentum"))
            if isinstance(momentum, float) and 0.9 <= momentum < 1:
                yield At(call, f"momentum={momentum} is the weight of the last batch alone.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Give the other part of 1."""
        given = argument(node, 2, "momentum")
        assert given is not None
        return [replace_node(module, given, repr(round(1 - float(literal(module, given)), 6)))]
