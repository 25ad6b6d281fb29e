# SPDX-License-Identifier: Apache-2.0
"""binary_cross_entropy of something other than probabilities."""

from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import argument, last_operations

NO_PROBABILITIES = operations(numbers="projected rectified activated log-share")


class LogitsInBinaryCrossEntropy(SourceCheck):
    """binary_cross_entropy gets raw outputs or logarithms where it takes probabilities.

    Why: it takes their logarithm: values outside of 0 to 1 raise, and those that happen to lie inside
    mean nothing.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 1)

            def forward(self, x):
                return F.logsigmoid(self.fc(x))

        loss = F.binary_cross_entropy(Net()(x), torch.ones(8, 1))  # here

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 1)

            def forward(self, x):
                return self.fc(x)

        loss = F.binary_cross_entropy_with_logits(Net()(x), torch.ones(8, 1))

    Fix: binary_cross_entropy_with_logits on the raw outputs, with no activation before it.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/042/main.py:27;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/042/original_code_snippet.py:20; beds Q, T, Y: 4 true, 3
    false.
    """

    code = "LOSS022"
    words = ("binary_cross_entropy", "BCELoss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one whose input was made by something that gives no probabilities, on every path."""
        for call in loss_calls(module, "binary_cross_entropy"):
            given = argument(call, 0, "input")
            operations = last_operations(module, given) if given is not None else set()
            if operations and operations <= NO_PROBABILITIES:
                made = " or ".join(sorted(str(each) for each in operations))
                yield At(call, f"The input of binary_cross_entropy is the result of {made}.")
