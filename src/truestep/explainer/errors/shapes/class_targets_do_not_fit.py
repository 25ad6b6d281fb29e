# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import are_outputs_and_targets_swapped, loss_outputs_and_targets
from truestep.explainer.values import format_tensor_dtype_and_shape, raw_tensor_shape


class ClassTargetsDoNotFit(Explainer):
    """The targets of a classification loss have another shape, or other classes, than the outputs.

    Means: cross entropy takes outputs (batch, classes, ...) and int64 targets (batch, ...) from 0 to classes - 1.

    Raises:
        logits, labels = torch.zeros(4, 3), torch.tensor([1, 2, 3, 1])
        F.cross_entropy(logits, labels)

    Works:
        logits, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])
        F.cross_entropy(logits, labels)

    Fix: make outputs (batch, classes) and targets (batch,): squeeze a trailing axis of size 1 from the targets, count
    labels from 0, and give the last layer as many outputs as there are classes.

    Cases:
        `exchanged=`: the labels stand first, where the loss takes the outputs{pair}.
            Fix: exchange the two: the outputs first and then the labels, F.nll_loss(outputs, labels).
        `alone=negative`: a label is {label}, and labels go from 0 to one less than there are classes.
            Fix: write ignore_index={label}, if it marks what should not count; else correct the labels.
        `alone=`: a label is {label}, and the outputs have at most {label} classes, 0 among them.
            Fix: give the last layer at least {needed} outputs, or map the labels to 0 and on; where they count from 1, subtract 1.
        `label_is=next`: the outputs have {classes} classes, so labels go from 0 to {most}; a label is {label}{pair}.
            Fix: labels seem to count from 1: subtract 1, or give the last layer {needed} outputs if 0 is one too.
        `label_is=negative`: the outputs have {classes} classes, so labels go from 0 to {most}; a label is {label}{pair}.
            Fix: write ignore_index={label}, if it marks what should not count; else correct the labels.
        otherwise: the outputs have {classes} classes, so labels go from 0 to {most}; a label is {label}{pair}.
            Fix: give the last layer at least {needed} outputs, or map the labels to 0 ... {most}.
        otherwise: {input} rows of outputs meet {target} targets{pair}.
            Fix: the {larger} have {times} rows for each row of the others: a view or reshape before this line moved sizes
            into the batch axis. Write x.flatten(1) there; for sequences flatten both.
        otherwise: {input} rows of outputs meet {target} targets{pair}.
            Fix: let both come from the same batch: look at the reshape before this line, and at zip() of two loaders.
        `whole=`: the outputs are integers, and through these no gradient goes back{pair}.
            Fix: give the loss the model's own outputs: leave argmax(), .long() and the like out before it.
        `columns=` and `last=one`: the targets have an axis of size 1 too many{pair}.
            Fix: write targets.squeeze(1).
        `columns=` and `last=more`: the targets have two axes{pair}.
            Fix: one-hot targets: write targets.argmax(1), or targets.float() to use them as probabilities. Several labels
            for each sample: use BCEWithLogitsLoss.
        `columns=`: the targets have two axes.
            Fix: of shape (batch, 1): write targets.squeeze(1). One-hot: targets.argmax(1), or targets.float() to use them
            as probabilities. Several labels for each sample: use BCEWithLogitsLoss.
        `one_hot=`: the targets have as many axes as the outputs{pair}.
            Fix: class indices have one axis fewer than the outputs: squeeze the channel axis of masks (targets.squeeze(1)),
            or, if these are one-hot or probabilities, write targets.argmax(1) or targets.float().
        `classes_last=`: the classes are in the last axis of the outputs, and the loss takes them in the second{pair}.
            Fix: write outputs.movedim(-1, 1), or flatten both, outputs.flatten(0, -2) and targets.flatten(). If each item of
            the data was a batch already, it was batched once more: leave that out.
        `shapes=`: the shapes do not fit each other{pair}.
    """

    messages = (
        r"Target (?P<label>-?\d+) is out of bounds",
        r"Expected input batch_size \((?P<input>\d+)\) to match target batch_size \((?P<target>\d+)\)",
        r"Expected target size (?P<wanted>[\[(][\d, ]+[\])]), got (?:torch\.Size\()?(?P<given>[\[(][\d, ]+[\])])",
        r"(?P<columns>0D or 1D target tensor expected, multi-.*ed|multi-.* supported|1D target tensor expected)",
        r"only batches of spatial targets supported \(\w+ tensors\) but got targets of (?:dimension|size): ?:? ?(?P<axes>.*)",
        r"Expected floating point type for target with class probabilities",
        r"Assertion `cur_target >= 0 && cur_target < n_classes' failed",
    )
    not_in_a_log = "which sample has the label, and the shapes of outputs and targets"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        found, pair = match.groupdict(), loss_outputs_and_targets(crash)
        told = (
            f" (outputs {format_tensor_dtype_and_shape(pair[0])}, targets {format_tensor_dtype_and_shape(pair[1])})"
            if pair
            else ""
        )
        facts = {"pair": told} | ({"shapes": "yes"} if pair else {})
        if are_outputs_and_targets_swapped(pair):
            return facts | {"exchanged": "yes"}
        if found.get("label"):
            return facts | _label_out_of_range_facts(int(found["label"]), pair)
        if found.get("input"):
            return facts | _batch_size_ratio_facts(int(found["input"]), int(found["target"]))
        if pair is None:
            return facts
        facts["last"] = "one" if raw_tensor_shape(pair[1])[-1:] == (1,) else "more"
        if not pair[0].is_floating_point():
            return facts | {"whole": "yes"}
        if raw_tensor_shape(pair[0])[:-1] == raw_tensor_shape(pair[1]) and len(raw_tensor_shape(pair[1])) > 1:
            return facts | {"classes_last": "yes"}
        one_hot = not pair[1].is_floating_point() and pair[0].dim() == pair[1].dim()
        return facts | ({"one_hot": "yes"} if one_hot else {})


def _label_out_of_range_facts(label: int, pair: tuple[Any, Any] | None) -> dict[str, str]:
    if pair is None:
        return {"alone": "negative" if label < 0 else "yes", "needed": str(label + 1)}
    shape = raw_tensor_shape(pair[0])
    classes = shape[1] if len(shape) > 1 else shape[0]
    label_is = "next" if label == classes else "negative" if label < 0 else "beyond"
    needed = str(label + 1)
    return {"classes": str(classes), "most": str(classes - 1), "needed": needed, "label_is": label_is}


def _batch_size_ratio_facts(first: int, second: int) -> dict[str, str]:
    if not (first and second) or max(first, second) % min(first, second):
        return {}
    times = max(first, second) // min(first, second)
    return {"larger": "outputs" if first > second else "targets", "times": str(times)}
