# SPDX-License-Identifier: Apache-2.0
"""A model that gives two answers in eval mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.probe_base import Probe
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.watcher_base import Observation, Observations

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.probed_model import ProbedModel
    from truestep.doctor.runtime.traced_forward import ProbedValue, ProbePassage

# a sum over batches goes on by the same; in float32 a share of a few numbers is known to some digits
_MOST_SHARE, _ROUNDING = 1.001, 1e-3


class EvaluationNotRepeatable(Probe):
    """In eval mode the model gives different outputs for the same input.

    Why: something random ignores the mode (F.dropout without training=self.training, layers made in forward):
    validation figures are noise. A state that goes from batch to batch is left alone; an average that forward moves in
    eval mode, too, is not.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 3)

            def forward(self, x):
                return self.layer(x) + torch.randn(3)

        F.cross_entropy(Net()(x), y).backward()  # here

    Good:
        F.cross_entropy(net(x), y).backward()

    Fix: make what is random depend on self.training; where sampling is meant (a VAE), hide it:
    `# truestep: ignore[EVAL012]`.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/aae/aae.py:176; graykode/nlp-tutorial
    d05e31ec 5-2.BERT/BERT.py:114.
    """

    code = "EVAL012"

    def try_out(self, forward: ForwardCall) -> Observations:
        """Apply the model in eval mode twice; where that differs, once more, to tell what is drawn from what is carried."""
        from truestep.doctor.runtime.probed_model import ProbedModel
        from truestep.doctor.runtime.traced_forward import ProbePassage

        with ProbedModel(forward) as trial:
            first = ProbePassage(trial, seed=0)
            passages = [ProbePassage(trial, seed=1, after=first)]
            difference = _output_difference(first.output, passages[0].output)
            if difference is None:
                return
            for seed in (2, 3):  # of the first one's steps some may have made what the others find
                passages.append(ProbePassage(trial, seed=seed, after=passages[-1]))
            begins = _first_differing_operations(passages)
            drawn = [each for each in begins if not _is_state_carried_over(each)] or _random_operations(trial)
        if drawn and first.output is not None and not first.output.ndim and _are_all_in_own_forward(drawn):
            return  # a loss that draws, as one of diffusion does, and no answer
        moving = [
            each for each in begins if _is_state_carried_over(each) and _is_running_statistic(each, forward)
        ]
        if begins and not drawn and not moving:
            return  # a state of the user's goes from batch to batch, as that of a recurrent network
        begin = next((steps[0] for steps in drawn or moving), None)
        told = f" from {begin.told(forward.variable)} on" if begin is not None else ""
        kept = ", where a figure that forward keeps moves in eval mode, too" if moving and not drawn else ""
        text = f"In eval mode two passes over the same input differ{told}{kept}: is that meant?"
        made_at = begin.place if begin is not None else None
        evidence = {"largest_difference": difference, "model": forward.called, "made_at": made_at}
        yield Observation(forward.place, text, QUESTION, evidence)


def _output_difference(first: Tensor | None, second: Tensor | None) -> float | None:
    """Return by how much two outputs differ, None where they don't, or can't be compared."""
    import torch

    if first is None or second is None or first.shape != second.shape:
        return None
    if torch.equal(first, second) or torch.allclose(first, second, equal_nan=True):
        return None
    return float((first.float() - second.float()).abs().max())


def _first_differing_operations(passages: list[ProbePassage]) -> list[tuple[ProbedValue, ...]]:
    """Return the operations that give other results though all that these passages gave them is the same."""
    from truestep.doctor.runtime.traced_forward import aligned_steps, probed_values_differ

    found, others = [], set[int]()
    for steps in aligned_steps(passages):
        if bool(probed_values_differ(steps[0].value, steps[1].value).any()):
            others.add(id(steps[0]))
            if not any(id(each) in others for each in steps[0].before):
                found.append(steps)
    return found


def _are_all_in_own_forward(begins: list[tuple[ProbedValue, ...]]) -> bool:
    """Tell whether the model itself draws, and no layer within it."""
    return not any(each.layer for steps in begins for each in steps)


def _is_state_carried_over(steps: tuple[ProbedValue, ...]) -> bool:
    """Tell whether an operation was given what the passage before left behind."""
    return all(each.carried is not None for each in steps)


def _random_operations(trial: ProbedModel) -> list[tuple[ProbedValue, ...]]:
    """Return the operations that differ where every pass starts from the same state."""
    from truestep.doctor.runtime.traced_forward import ProbePassage

    passages: list[ProbePassage] = []
    for seed in (4, 5):
        trial.put_back()
        passages.append(ProbePassage(trial, seed=seed, after=passages[-1] if passages else None))
    return [each for each in _first_differing_operations(passages) if each[1].carried is None]


def _is_running_statistic(steps: tuple[ProbedValue, ...], forward: ForwardCall) -> bool:
    """Tell whether what is carried is an average or a sum of batches, as by hand-written running statistics.

    Each pass over one input then moves all numbers of it by the same share of how far the pass before moved them. What is
    computed from the state by weights moves each number by another share; and what holds a row for each example is a state.
    """
    import torch

    one, two, three = (each.carried.double() for each in steps if each.carried is not None)
    rows = next((len(each) for each in forward.args if isinstance(each, torch.Tensor) and each.ndim), 1)
    if not one.shape == two.shape == three.shape or (rows > 1 and rows in one.shape):
        return False
    before, after = two - one, three - two
    size = float(before.square().sum())
    share = float((before * after).sum()) / size if size else 0.0
    return 0 < share < _MOST_SHARE and bool(
        ((after - share * before).abs() <= _ROUNDING * after.abs().max() + 1e-12).all()
    )
