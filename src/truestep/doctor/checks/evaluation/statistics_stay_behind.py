# SPDX-License-Identifier: Apache-2.0
"""An averaged model with new weights and old statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from truestep.doctor.check import RISK
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.runtime.history import ModelApplication, WatchHistory

_ALIKE = 0.5  # of the biases of a model and of its copy


class _BatchNormRecord(NamedTuple):
    """What is kept of a batch norm of a copy."""

    weight: Tensor
    mean: Tensor


class StatisticsStayBehind(Watcher):
    """A copy whose weights follow those of the trained model is evaluated with batch norm statistics that do not.

    Why: an average by `parameters()` leaves out buffers. The copy then normalises by statistics that its weights
    were never trained with, and its figures are worse than the model is.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        average = copy.deepcopy(net).eval()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                for one, other in zip(average.parameters(), net.parameters()):
                    one.data.lerp_(other.data, 0.1)
            with torch.no_grad():
                for x, y in test_loader:
                    correct = (average(x).argmax(1) == y).sum()  # here

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        average = copy.deepcopy(net).eval()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                for one, other in zip(average.parameters(), net.parameters()):
                    one.data.lerp_(other.data, 0.1)
                for one, other in zip(average.buffers(), net.buffers()):
                    one.copy_(other)
            with torch.no_grad():
                for x, y in test_loader:
                    correct = (average(x).argmax(1) == y).sum()

    Fix: copy the buffers as well, or give each of them a pass of `torch.optim.swa_utils.update_bn` before the evaluation.

    Evidence: lucidrains/ema-pytorch d65f4e30 ema_pytorch/ema_pytorch.py:112.
    """

    code = "EVAL052"
    is_preview = True

    def __init__(self) -> None:
        self.before: dict[int, _BatchNormRecord] = {}  # of each norm of a copy, at the evaluation before

    def on_evaluation(self, history: WatchHistory, applied: list[ModelApplication]) -> Observations:
        """Compare the batch norms of each copy with those of the model that is trained, and with what they were."""
        for each in {id(one.model): one for one in applied}.values():
            norms = [
                norm
                for norm in _batch_norms(each.model)
                if not norm.training and not history.is_trained(norm)
            ]
            for trained in _matching_trained_norms(history, norms):
                pairs = list(zip(norms, trained, strict=True))
                behind = [own for own, other in pairs if self._has_stale_statistics(own, other)]
                if 2 * len(behind) > len(norms):
                    text = (
                        f"{history.called(each.model)} is evaluated with batch norm statistics that stayed as they were, while "
                        "its weights and the trained model's statistics moved: copy the buffers, too."
                    )
                    yield Observation(each.place, text, RISK, {"layers": len(behind)})
                    break
            self.before.update(
                {id(norm): _BatchNormRecord(norm.weight.clone(), norm.running_mean.clone()) for norm in norms}
            )

    def _has_stale_statistics(self, own: Any, other: Any) -> bool:
        """Tell a norm whose statistics are its first ones, or those of the evaluation before, though it was given weights."""
        import torch

        if own.running_mean.device != other.running_mean.device or torch.equal(
            own.running_mean, other.running_mean
        ):
            return False
        before = self.before.get(id(own))
        if before is not None:
            return torch.equal(own.running_mean, before.mean) and not torch.equal(own.weight, before.weight)
        is_first = not own.running_mean.any() and bool((own.running_var == 1).all())
        likeness = torch.cosine_similarity(own.bias.flatten(), other.bias.flatten(), 0)
        return is_first and float(likeness) > _ALIKE


def _batch_norms(model: nn.Module) -> list[Any]:
    """Return the batch norms that have weights and statistics."""
    from torch import nn

    found = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    return [each for each in found if each.affine and each.running_mean is not None]


def _matching_trained_norms(history: WatchHistory, norms: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the norms of each trained model that has as many, of the same sizes."""
    sizes = [each.num_features for each in norms]
    for model in history.models:
        held = [each for each in _batch_norms(model) if history.is_trained(each)]
        if norms and [each.num_features for each in held] == sizes:
            yield held
