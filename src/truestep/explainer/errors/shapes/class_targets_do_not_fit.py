# SPDX-License-Identifier: Apache-2.0
"""ClassTargetsDoNotFit."""

from typing import Any

from truestep.explainer.explainer import Cause, Crash, Explainer, Match
from truestep.explainer.values import is_tensor_at_crash, shape_at_crash, tensor_as_evidence


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
    """

    messages = (
        r"Target (?P<label>-?\d+) is out of bounds",
        r"Expected input batch_size \((?P<input>\d+)\) to match target batch_size \((?P<target>\d+)\)",
        r"Expected target size (?P<wanted>[\[(][\d, ]+[\])]), got (?:torch\.Size\()?(?P<given>[\[(][\d, ]+[\])])",
        (
            r"(?P<columns>0D or 1D target tensor expected, multi-target not supported|multi-target not supported|1D "
            r"target tensor expected)"
        ),
        r"only batches of spatial targets supported \(\w+ tensors\) but got targets of (?:dimension|size): ?:? ?(?P<axes>.*)",
        r"Expected floating point type for target with class probabilities",
        r"Assertion `cur_target >= 0 && cur_target < n_classes' failed",
    )
    not_in_a_log = "which sample has the label, and the shapes of outputs and targets"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found, pair = match.groupdict(), _pair(crash)
        shapes = (
            f" (outputs {tensor_as_evidence(pair[0])}, targets {tensor_as_evidence(pair[1])})" if pair else ""
        )
        if found.get("label"):
            return _label(int(found["label"]), pair, shapes)
        if found.get("input"):
            return _batches(int(found["input"]), int(found["target"]), shapes)
        if found.get("columns"):
            return _columns(pair, shapes)
        if pair and not pair[1].is_floating_point() and pair[0].dim() == pair[1].dim():
            return Cause(f"the targets have as many axes as the outputs{shapes}.", _ONE_HOT)
        return Cause(f"the shapes do not fit each other{shapes}.") if shapes else None


_ONE_HOT = (
    "class indices have one axis fewer than the outputs: squeeze the channel axis of masks (targets.squeeze(1)), or, if "
    "these are one-hot or probabilities, write targets.argmax(1) or targets.float()."
)


def _pair(crash: Crash) -> tuple[Any, Any] | None:
    """Return outputs and targets, as the loss function was given them."""
    for frame in reversed(crash.frames):
        names = frame.locals()
        if is_tensor_at_crash(names.get("input")) and is_tensor_at_crash(names.get("target")):
            return names["input"], names["target"]
    return None


def _label(label: int, pair: tuple[Any, Any] | None, shapes: str) -> Cause:
    if pair is None:
        return Cause(f"a label is {label}, and the outputs have too few classes for it (or it is negative).")
    classes = shape_at_crash(pair[0])[1] if len(shape_at_crash(pair[0])) > 1 else shape_at_crash(pair[0])[0]
    says = f"the outputs have {classes} classes, so labels go from 0 to {classes - 1}; a label is {label}{shapes}."
    if label == classes:
        return Cause(
            says,
            f"labels seem to count from 1: subtract 1, or give the last layer {classes + 1} outputs if 0 is one too.",
        )
    if label < 0:
        return Cause(
            says, f"write ignore_index={label}, if it marks what should not count; else correct the labels."
        )
    return Cause(
        says, f"give the last layer at least {label + 1} outputs, or map the labels to 0 ... {classes - 1}."
    )


def _batches(first: int, second: int, shapes: str) -> Cause:
    says = f"{first} rows of outputs meet {second} targets{shapes}."
    if first and second and max(first, second) % min(first, second) == 0:
        larger = "outputs" if first > second else "targets"
        return Cause(
            says,
            f"the {larger} have {max(first, second) // min(first, second)} rows for each row of the others: a view or reshape "
            "before this line moved sizes into the batch axis. Write x.flatten(1) there; for sequences flatten both.",
        )
    return Cause(
        says,
        "let both come from the same batch: look at the reshape before this line, and at zip() of two loaders.",
    )


def _columns(pair: tuple[Any, Any] | None, shapes: str) -> Cause:
    if pair is not None and shape_at_crash(pair[1])[-1] == 1:
        return Cause(f"the targets have an axis of size 1 too many{shapes}.", "write targets.squeeze(1).")
    if pair is None:
        return Cause(
            "the targets have two axes.",
            "of shape (batch, 1): write targets.squeeze(1). One-hot: targets.argmax(1), or targets.float() to use them as "
            "probabilities. Several labels for each sample: use BCEWithLogitsLoss.",
        )
    return Cause(
        f"the targets have two axes{shapes}.",
        "one-hot targets: write targets.argmax(1), or targets.float() to use them as probabilities. Several labels "
        "for each sample: use BCEWithLogitsLoss.",
    )
