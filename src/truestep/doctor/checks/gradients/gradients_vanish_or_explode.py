# SPDX-License-Identifier: Apache-2.0
"""Gradients that are next to nothing, or that grow beyond all bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.runtime.tensor_queries import is_readable_without_sync
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

SMALL = 1e-6  # times the largest gradient per weight
SMALL_FOR_ADAM = 0.01  # the same from the first step on, where the gradient is also below so many eps
FACTOR = 1000.0  # times the median of the first three norms
TIMES_EPS = 4  # a gradient of 4 eps loses a fifth of its step by Adam's division, one of 1 eps half


class GradientsVanishOrExplode(Watcher):
    """The gradients of the first layers are a millionth of those of the last or lost in Adam's eps, or grow a thousandfold.

    Why: those layers learn nothing in any reasonable time. Adam makes up for small gradients only above its eps. Steps that
    are too large throw the weights far away; NaN is near.

    Bad:
        layers = [layer for _ in range(12) for layer in (nn.Linear(4, 4), nn.Sigmoid())]
        net = nn.Sequential(*layers, nn.Linear(4, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()  # here

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: ReLU-like activations, residual connections, normalisation, a fitting initialisation; against large ones a lower
    learning rate, warm-up, clipping by norm.

    Evidence: MorvanZhou/PyTorch-Tutorial dbe154a9 tutorial-contents/504_batch_normalization.py:74;
    eriklindernoren/PyTorch-GAN 36d3c77e implementations/infogan/infogan.py:282;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/main.py:14.
    """

    code = "GRAD025"

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.ever_large: set[int] = set()  # optimizers whose first layer once had gradients like the others'
        self.norms: dict[int, list[float]] = {}

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Look at the gradients that a step takes."""
        yield from self._check_vanishing(record, place)
        if history.is_in_first_steps:
            yield from self._check_exploding(record, place)

    def _check_vanishing(self, record: OptimizerRecord, place: Place) -> Observations:
        """Compare root mean squares of the gradients of matrices, and judge at steps 4 to 8."""
        matrices = [each for each in record.parameters() if each.grad is not None and each.dim() >= 2]
        if len(matrices) < 3 or record.num_steps > 8 or not all(map(is_readable_without_sync, matrices)):
            return
        sizes = [_nonzero_rms(each.grad) for each in matrices if each.grad is not None]
        eps = _adam_eps(record)
        if sizes[0] >= SMALL_FOR_ADAM * max(sizes):
            self.ever_large.add(id(record))
        lost = sizes[0] < TIMES_EPS * eps and id(record) not in self.ever_large
        if (
            record.num_steps >= 4
            and 0 < max(sizes) < float("inf")
            and (sizes[0] < SMALL * max(sizes) or lost)
        ):
            self.seen[id(record)] = self.seen.get(id(record), 0) + 1
            if self.seen[id(record)] == 3:
                evidence = {"first_layer": sizes[0], "largest": max(sizes), "step": record.num_steps + 1}
                evidence |= {"eps": eps} if eps else {}
                yield Observation(
                    place, "The gradients of the first layer have all but vanished.", RISK, evidence
                )

    def _check_exploding(self, record: OptimizerRecord, place: Place) -> Observations:
        """Compare with the median of the first three norms, within the window."""
        gradients = [each.grad for each in record.parameters() if each.grad is not None]
        if not gradients or not all(map(is_readable_without_sync, gradients)):
            return
        norm = sum(float(each.detach().abs().float().square().sum()) for each in gradients) ** 0.5
        norms = self.norms.setdefault(id(record), [])
        norms.append(norm)
        first = sorted(norms[:3])[1] if len(norms) > 3 else None
        if first and FACTOR * first < norm < float("inf"):
            evidence = {"norm": norm, "first_norms": first, "step": record.num_steps + 1}
            norms.clear()
            text = f"The gradient norm grew {norm / first:.0f}-fold within the first steps."
            yield Observation(place, text, RISK, evidence)


def _nonzero_rms(gradient: Tensor) -> float:
    """Return the root mean square over what is not 0: of an embedding, the rows of this batch."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return float(values.norm() / values.count_nonzero().clamp(min=1).sqrt())


def _adam_eps(record: OptimizerRecord) -> float:
    defaults = record.optimizer.defaults
    return float(defaults.get("eps") or 0.0) if "betas" in defaults else 0.0
