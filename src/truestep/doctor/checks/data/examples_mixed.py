# SPDX-License-Identifier: Apache-2.0
"""An example's output that depends on another example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.probe_base import Probe
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.runtime.tensor_queries import watched_tensors
from truestep.doctor.watcher_base import Observation, Observations

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.traced_forward import ProbedValue, ProbePassage

_ENDS = (slice(0, 1), slice(-1, None))
_BY_BATCH = "which normalises by the batch in evaluation too: eval() does not reach it, or it has no running statistics"
EXAMPLES = 4  # of the batch; where the model takes no fewer, all


class ExamplesMixed(Probe):
    """In eval mode, the output for one example depends on the other examples of the batch.

    Why: a view or softmax over the wrong dimension mixes them: what is learned depends on who else is in
    the batch.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 3)

            def forward(self, x):
                return self.layer(x).softmax(0)

        F.mse_loss(Net()(x), torch.rand(8, 3)).backward()  # here

    Good:
        F.cross_entropy(net(x), y).backward()

    Fix: look at the operation that is named: a view or reshape in place of permute before it, softmax or norms over
    dimension 0, batch_first.

    Evidence: graykode/nlp-tutorial d05e31ec 4-3.Bi-LSTM(Attention)/Bi-LSTM(Attention).py:21.
    """

    code = "DATA015"

    def obstacle(self, forward: ForwardCall) -> str | None:
        """Tell a forward that takes more than one batch of numbers."""
        return _reason_not_testable(forward, forward.numbers)

    def try_out(self, forward: ForwardCall) -> Observations:
        """Change the other examples' inputs, and look at the output of the first."""
        given = forward.numbers
        assert given is not None
        try:
            yield from self._compare_first_output(forward, given[:EXAMPLES])
        except (RuntimeError, ValueError, IndexError):
            if len(given) <= EXAMPLES:
                raise
            yield from self._compare_first_output(forward, given)

    def _compare_first_output(self, forward: ForwardCall, given: torch.Tensor) -> Observations:
        from truestep.doctor.forks.child import NotTriedError
        from truestep.doctor.runtime.probed_model import ProbedModel
        from truestep.doctor.runtime.traced_forward import ProbePassage, probed_values_differ

        with ProbedModel(forward) as trial:
            base = ProbePassage(trial, {0: given})
            # what goes through the batch as through time gives the first example nothing of the later ones
            for which, mine in zip(("first", "last"), _ENDS[: 2 if given.dim() > 2 else 1], strict=False):
                trial.put_back()
                others = ProbePassage(trial, {0: _perturb_batch(given, but=mine)})
                before, after = base.output, others.output
                if before is None or after is None or before.dim() != 2 or len(before) != len(given):
                    raise NotTriedError("which axis of the model's output is the batch can't be told")
                if not bool(probed_values_differ(before[mine], after[mine]).any()):
                    continue
                trial.put_back()
                meets = _first_mixing_operation(
                    [base, ProbePassage(trial, {0: _perturb_batch(given, mine)}), others]
                )
                change, size = (before[mine] - after[mine]).abs().max(), before[mine].abs().max()
                evidence = {
                    "relative_influence": float(change / size),
                    "model": forward.called,
                    "made_at": meets.place if meets is not None else None,
                }
                told = _meeting_text(meets, forward)
                text = f"The output for the {which} example depends on the others of its batch{told}."
                yield Observation(forward.place, text, RISK, evidence)
                return


def _meeting_text(meets: ProbedValue | None, forward: ForwardCall) -> str:
    """Return where the examples first meet, and why where that is known."""
    if meets is None:
        return ""
    why = f", {_BY_BATCH}" if meets.operation == "batch_norm" else ""
    return f": they first meet in {meets.told(forward.variable)}{why}"


def _first_mixing_operation(passages: list[ProbePassage]) -> ProbedValue | None:
    """Return the first operation with a number that both changes with the first example and with the others."""
    from truestep.doctor.runtime.traced_forward import align_passages, probed_values_differ

    for computed, (base, one, others) in align_passages(passages):
        if bool((probed_values_differ(base, one) & probed_values_differ(base, others)).any()):
            return computed
    return None


def _perturb_batch(
    given: torch.Tensor, rows: slice | None = None, *, but: slice | None = None
) -> torch.Tensor:
    """Return the batch with some examples, or all but some, changed: numbers by noise, indices to another example's."""
    import torch

    changed = given.detach().clone()
    if given.is_floating_point():
        noise = torch.randn(given.shape, generator=torch.Generator().manual_seed(0)).to(given)
        changed += 0.1 * (noise * given.detach().std())
    else:
        changed = changed.roll(1, 0)
    if rows is not None:  # all others stay
        kept, changed = changed[rows], given.detach().clone()
        changed[rows] = kept
    if but is not None:
        changed[but] = given.detach()[but]
    return changed


def _reason_not_testable(forward: ForwardCall, given: torch.Tensor | None) -> str | None:
    """Several inputs may mix examples by right: a graph's edges do, and the rows of a packed sequence are time steps."""
    single = len(list(watched_tensors((forward.args, forward.kwargs)))) == 1
    if not single:
        return "the model is given several tensors, and which of them hold examples can't be told"
    if given is None or given.dim() < 2:
        return "the model's only input is no batch of numbers"
    return None if len(given) > 1 else "the batch holds one example"
