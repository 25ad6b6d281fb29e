# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class DataOfUnequalLength(Explainer):
    """Inputs and labels of a data set are not of the same number.

    Means: row i of each belongs to one sample, so that all have the same size along their first axis.

    Raises:
        inputs, labels = torch.zeros(10, 3), torch.zeros(9)
        data = TensorDataset(inputs, labels)

    Works:
        inputs, labels = torch.zeros(10, 3), torch.zeros(10)
        data = TensorDataset(inputs, labels)

    Fix: look at where they were cut or filtered: the same rows must go from both (a split, dropna, a window over a series). Where
    samples are columns, transpose.

    Cases:
        otherwise: {lengths} samples.
        otherwise: {shapes}.
    """

    messages = (
        r"Size mismatch between tensors",
        r"Found input variables with inconsistent numbers of samples: \[(?P<lengths>[\d, ]+)\]",
        r"Expected same length for all datasets",
    )
