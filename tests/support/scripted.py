# SPDX-License-Identifier: Apache-2.0
"""Scripted modules, which people still have.

`torch.jit` is deprecated: it gives a DeprecationWarning in torch 2.13 and a FutureWarning from 2.14 on.
"""

import warnings

import torch
from torch import nn


def scripted(module: nn.Module) -> torch.jit.ScriptModule:
    """Return the module compiled by `torch.jit.script`, without the warning that this is deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
        warnings.filterwarnings("ignore", ".*torch.jit", FutureWarning)
        return torch.jit.script(module)
