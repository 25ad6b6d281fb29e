# SPDX-License-Identifier: Apache-2.0
"""A momentum in the place of a norm's eps."""

from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import constant

_NORMS = tuple(
    f"torch.nn.{name}"
    for name in (
        *(f"{kind}{axes}d" for kind in ("BatchNorm", "InstanceNorm", "LazyBatchNorm") for axes in (1, 2, 3)),
        "SyncBatchNorm",
        "LayerNorm",
    )
)
_LARGE = 0.05  # a hundred times what anyone adds against a division by zero


class NormEpsilonTooLarge(SourceCheck):
    """The second argument of a norm, its eps, is large enough to be a momentum.

    Why: it is added to the variance before the root: activations of small variance are hardly scaled up,
    and the momentum that was meant stays at 0.1.

    Bad:
        block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, 0.8), nn.ReLU())  # here

    Good:
        block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=0.2), nn.ReLU())

    Fix: momentum=; torch's is the weight of the new batch: 1 minus what Keras calls so.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/acgan/acgan.py:59; eriklindernoren/PyTorch-
    GAN 36d3c77e implementations/began/began.py:58; beds A, G, H, I, K, O, R, S, V, W, Y: 57 true, 0 false.
    """

    code = "PARAM030"
    words = ("Norm",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a literal of 0.05 or more at the second place; under `eps=` it is meant."""
        for call in module.calls(*_NORMS):
            given = constant(call.args[1]) if len(call.args) > 1 else None
            if isinstance(given, (int, float)) and not isinstance(given, bool) and given >= _LARGE:
                name = (module.qualify(call.func) or "").rsplit(".", 1)[-1]
                yield At(call, f"The second argument of {name} is eps: {given} is added to the variance.")
