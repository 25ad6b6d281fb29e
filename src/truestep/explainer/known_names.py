# SPDX-License-Identifier: Apache-2.0
"""Names whose absence tells why: of values that are something else than was thought, and of what is gone."""

# what tensors have, and numbers of Python's do not
TENSOR_NAMES = {
    "backward", "item", "detach", "cpu", "cuda", "to", "shape", "size", "dim", "mean", "sum", "numpy", "data",
    "clone", "view",
}  # fmt: skip

# a type that was met instead of the one expected: (what it means, what to do)
KINDS = {
    "NoneType": (
        "the value is None: what should have made it returned nothing",
        "look for a function without return, a failed search (.grad before backward, re.match), or a call in place (list.sort()).",
    ),
    "_IncompatibleKeys": (
        "load_state_dict returns a report on keys, and not the model",
        "write model.load_state_dict(state) on a line of its own, and use model after it.",
    ),
    "tuple": (
        "the value is a tuple: the call gave several results (LSTM gives output and state; a loader gives inputs and labels)",
        "unpack it: output, state = layer(x).",
    ),
    "list": (
        "the value is a list",
        "take one of its items, or put layers into nn.ModuleList and stack tensors (torch.stack).",
    ),
    "dict": (
        "the value is a dict",
        'write value["{attribute}"]; a state dict is loaded into a model with model.load_state_dict(state).',
    ),
    "collections.OrderedDict": (
        "the value is a state dict, and not a model",
        "make the model, then model.load_state_dict(state).",
    ),
    "OrderedDict": (
        "the value is a state dict, and not a model",
        "make the model, then model.load_state_dict(state).",
    ),
    "str": ("the value is a string", "look at what was passed: iterating over a dict gives its keys."),
    "method": ("the value is a method that was not called", "write the parentheses: model.parameters()."),
    "numpy.ndarray": ("the value is a NumPy array, and not a tensor", "write torch.from_numpy(array) first."),
    "float": (
        "the value is a number: item() was called already, or a loss was replaced by its value",
        "keep the tensor until backward().",
    ),
    "int": ("the value is a number, and not a tensor", "look at where it was made: sum([]) gives 0."),
}

# attributes that layers of another version of torch have
OF_OTHER_TORCH = {
    "recompute_scale_factor": "load it with the torch that saved it, and save model.state_dict(); or delete the "
    "argument from the layer's forward.",
}

MODULES = {
    "distutils": (
        "distutils.version went away from setuptools and Python: an old torch.utils.tensorboard imports it so.",
        'update torch, or pip install "setuptools<60".',
    ),
}

# names that are used without their import
IMPORTS = {
    "torch": "write import torch.",
    "nn": "write from torch import nn.",
    "optim": "write from torch import optim.",
    "F": "write import torch.nn.functional as F.",
    "DataLoader": "write from torch.utils.data import DataLoader.",
    "np": "write import numpy as np.",
    "plt": "write import matplotlib.pyplot as plt.",
    "pd": "write import pandas as pd.",
    "os": "write import os.",
    "math": "write import math.",
    "tqdm": "write from tqdm import tqdm.",
    "CUDA_VISIBLE_DEVICES": 'put it in quotes: os.environ["CUDA_VISIBLE_DEVICES"].',
}

# keywords that torch has taken away
GONE = {
    "verbose": "leave verbose out: schedules print nothing since torch 2.7; log schedule.get_last_lr() instead.",
    "names": "named tensors are gone since torch 2.13: ts.named gives axes their names, or count them.",
    "size_average": 'write reduction="mean" (or "sum").',
}
