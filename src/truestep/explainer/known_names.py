# SPDX-License-Identifier: Apache-2.0
"""Names whose absence tells why: those of tensors, and of what is not imported."""

# what tensors have, and numbers of Python's do not
TENSOR_NAMES = {
    "backward", "item", "detach", "cpu", "cuda", "to", "shape", "size", "dim", "mean", "sum", "numpy", "data",
    "clone", "view",
}  # fmt: skip

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
