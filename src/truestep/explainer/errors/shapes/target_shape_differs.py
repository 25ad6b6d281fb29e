# SPDX-License-Identifier: Apache-2.0
"""TargetShapeDiffers."""

from truestep.explainer.explainer import Cause, Crash, Explainer, Match


class TargetShapeDiffers(Explainer):
    """Binary cross entropy gets targets of another shape than the outputs.

    Means: every output needs its own target: both must have the same shape, such as (batch, 1) and (batch, 1).

    Raises:
        logits, labels = torch.zeros(4, 1), torch.zeros(4)
        F.binary_cross_entropy_with_logits(logits, labels)

    Works:
        logits, labels = torch.zeros(4, 1), torch.zeros(4)
        F.binary_cross_entropy_with_logits(logits.squeeze(1), labels)

    Fix: write logits.squeeze(1) for one output a sample, or labels.unsqueeze(1). For class indices and several outputs,
    the loss is F.cross_entropy.
    """

    messages = (
        (
            r"Target size \(torch\.Size\(\[(?P<target>[\d, ]*)\]\)\) must be the same as input size "
            r"\(torch\.Size\(\[(?P<input>[\d, ]*)\]\)\)"
        ),
        (
            r"Using a target size \(torch\.Size\(\[(?P<target>[\d, ]*)\]\)\) that is different to the input size "
            r"\(torch\.Size\(\[(?P<input>[\d, ]*)\]\)\)"
        ),
    )
    checks = ("LOSS017",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        outputs, targets = (
            [int(size) for size in match[name].split(",") if size.strip()] for name in ("input", "target")
        )
        says = f"outputs ({match['input']}), targets ({match['target']})."
        if outputs == [*targets, 1]:
            return Cause(
                says,
                "write outputs.squeeze(-1), or targets.unsqueeze(-1): an axis of size 1 is the difference.",
            )
        if [*outputs, 1] == targets:
            return Cause(says, "write targets.squeeze(-1): an axis of size 1 is the difference.")
        if len(outputs) == 2 and len(targets) == 1 and outputs[0] == targets[0]:
            return Cause(
                says, f"{outputs[1]} outputs a sample and one label each are classes: use F.cross_entropy."
            )
        if outputs and targets and outputs[0] != targets[0] and outputs[1:] == targets[1:]:
            return Cause(
                says,
                "the batches differ: the last one is smaller; make the targets with outputs.size(0) rows.",
            )
        return Cause(says)
