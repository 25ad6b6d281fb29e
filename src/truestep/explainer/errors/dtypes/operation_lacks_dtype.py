# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import are_outputs_and_targets_swapped, loss_outputs_and_targets
from truestep.explainer.values import format_tensor_dtype_and_shape


class OperationLacksDtype(Explainer):
    """An operation does not exist for tensors of this dtype on this device.

    Means: many operations exist for floating point alone, and some not for float16 on a CPU.

    Raises:
        scores = torch.tensor([1, 2, 3])
        scores.softmax(0)

    Works:
        scores = torch.tensor([1, 2, 3])
        scores.float().softmax(0)

    Fix: convert integers with .float(). A float16 model on a CPU: write model.float() or model.bfloat16(), or run it
    on a GPU.

    Cases:
        `place=exchanged`: the labels ({outputs}) stand first, where the loss takes the outputs, and the outputs
            ({targets}) where it takes the labels.
            Fix: exchange the two: the outputs first and then the labels, F.cross_entropy(outputs, labels).
        `place=whole`: the loss was given integers as outputs ({outputs}), and through these no gradient goes back.
            Fix: give it the model's own outputs: leave argmax(), .long() and the like out before the loss.
        `'Half'` or `Got: Half` or `Got Half`: {operation} does not exist for {dtype}{and_tensor}.
            Fix: on a CPU float16 lacks operations: write model.float(), or bfloat16, or move it to a GPU.
        `'bool'` or `a bool tensor` or `Got: bool` or `Got bool`: {operation} does not exist for {dtype}{and_tensor}.
            Fix: invert a mask with ~mask, and compute with mask.float().
        otherwise: {operation} does not exist for {dtype}{and_tensor}.
    """

    messages = (
        r"\"(?P<operation>\w+)\" not implemented for '(?P<dtype>\w+)'",
        r"(?P<operation>\w+)\(\): could not infer output dtype\. Input dtype must be .*? Got: (?P<dtype>\w+)",
        r"[Cc]an only calculate the (?P<operation>mean) of floating types\. Got (?P<dtype>\w+) instead",
        r"(?P<operation>mean)\(\): input dtype should be either floating point or complex dtypes\. Got (?P<dtype>\w+) instead",
        r"(?P<operation>Subtraction|Negation), the `-` operator, (?:with|on) a (?P<dtype>bool) tensor is not supported",
        r"Only Tensors of floating point and complex dtype can require gradients",
        r"(?P<operation>[\w.]+): Low precision dtypes not supported\. Got (?P<dtype>\w+)",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        pair = loss_outputs_and_targets(crash) if "softmax" in match[0] else None
        if pair is None or pair[0].is_floating_point():
            return {}
        outputs, targets = map(format_tensor_dtype_and_shape, pair)
        return {
            "place": "exchanged" if are_outputs_and_targets_swapped(pair) else "whole",
            "outputs": outputs,
            "targets": targets,
        }
