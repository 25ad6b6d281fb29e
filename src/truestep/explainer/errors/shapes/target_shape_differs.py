# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


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

    Cases:
        `longer=outputs`: outputs ({input}), targets ({target}).
            Fix: write outputs.squeeze(-1), or targets.unsqueeze(-1): an axis of size 1 is the difference.
        `longer=targets`: outputs ({input}), targets ({target}).
            Fix: write targets.squeeze(-1): an axis of size 1 is the difference.
        otherwise: outputs ({input}), targets ({target}).
            Fix: {classes} outputs a sample and one label each are classes: use F.cross_entropy.
        `batches=differ`: outputs ({input}), targets ({target}).
            Fix: the batches differ: the last one is smaller; make the targets with outputs.size(0) rows.
        otherwise: outputs ({input}), targets ({target}).
    """

    messages = (
        r"Target size \(torch.Size\(\[(?P<target>[\d, ]*)\].* same as input size \(torch.Size\(\[(?P<input>[\d, ]*)\]",
        r"a target size \(torch.Size\(\[(?P<target>[\d, ]*)\].* different to .*\(torch.Size\(\[(?P<input>[\d, ]*)\]",
    )
    checks = ("LOSS017",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        outputs, targets = (
            [int(size) for size in match[name].split(",") if size.strip()] for name in ("input", "target")
        )
        if outputs == [*targets, 1]:
            return {"longer": "outputs"}
        if [*outputs, 1] == targets:
            return {"longer": "targets"}
        if len(outputs) == 2 and len(targets) == 1 and outputs[0] == targets[0]:
            return {"classes": str(outputs[1])}
        differ = outputs and targets and outputs[0] != targets[0] and outputs[1:] == targets[1:]
        return {"batches": "differ"} if differ else {}
