# SPDX-License-Identifier: Apache-2.0
"""Tests that the oldest torch can't pass: what it lacks, or says otherwise."""

import pytest
import torch
from torch.distributed.fsdp import FSDPModule

HAS_DIVISION = hasattr(FSDPModule, "set_reduce_scatter_unused_params")
DIVIDES = pytest.mark.skipif(
    not HAS_DIVISION, reason=f'strategy="fsdp" needs torch 2.13, and this is {torch.__version__}'
)
SAYS_TODAYS = pytest.mark.skipif(
    not HAS_DIVISION, reason=f"the page says what torch 2.13 and later do, and this is {torch.__version__}"
)
