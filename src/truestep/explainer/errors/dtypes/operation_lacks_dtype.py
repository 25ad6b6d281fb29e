# SPDX-License-Identifier: Apache-2.0
"""OperationLacksDtype."""

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import with_origin
from truestep.explainer.explainer import Cause, Explainer, Match


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
    """

    messages = (
        r"\"(?P<operation>\w+)\" not implemented for '(?P<dtype>\w+)'",
        r"(?P<operation>\w+)\(\): could not infer output dtype\. Input dtype must be .*? Got: (?P<dtype>\w+)",
        r"[Cc]an only calculate the mean of floating types\. Got (?P<dtype>\w+) instead",
        r"mean\(\): input dtype should be either floating point or complex dtypes\. Got (?P<dtype>\w+) instead",
        r"(?P<operation>Subtraction|Negation), the `-` operator, (?:with|on) a (?P<dtype>bool) tensor is not supported",
        r"Only Tensors of floating point and complex dtype can require gradients",
        r"(?P<operation>[\w.]+): Low precision dtypes not supported\. Got (?P<dtype>\w+)",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        dtype = match.groupdict().get("dtype")
        if dtype is None:
            return None
        tensors = crash.tensors
        says = f"{match.groupdict().get('operation') or 'mean'} does not exist for {dtype}"
        fix = _FIXES.get(dtype, "")
        return Cause(f"{says}: {with_origin(crash, tensors[0])}." if tensors else f"{says}.", fix)


_FIXES = {
    "Half": "on a CPU float16 lacks operations: write model.float(), or bfloat16, or move it to a GPU.",
    "bool": "invert a mask with ~mask, and compute with mask.float().",
}
