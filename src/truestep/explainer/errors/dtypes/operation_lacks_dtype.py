# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


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
