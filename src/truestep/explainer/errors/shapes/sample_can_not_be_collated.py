# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class SampleCanNotBeCollated(Explainer):
    """The data set gives something of which no batch can be made.

    Means: default_collate makes batches of tensors, NumPy arrays, numbers, strings, and dicts or lists of them.

    Raises:
        loader = DataLoader([None, None], batch_size=2)
        next(iter(loader))

    Works:
        loader = DataLoader([torch.zeros(3), torch.zeros(3)], batch_size=2)
        next(iter(loader))

    Fix: let __getitem__ return tensors (transforms.ToTensor() for PIL images) and never None; a sample that can't be
    read is left out when the data set is made, or filtered in a collate_fn.

    Cases:
        `'NoneType'`: a sample is None: __getitem__{data_set} or its transform returned nothing, often after a failed read.
        `'PIL.`: a sample is a {kind}.
            Fix: add transforms.ToTensor() as the last step of the data set's transform.
        otherwise: a sample holds a {kind}.
            Fix: return tensors: convert the {kind} in __getitem__, or pass collate_fn=.
    """

    messages = (
        r"batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class '(?P<kind>[\w.]+)'>",
    )
