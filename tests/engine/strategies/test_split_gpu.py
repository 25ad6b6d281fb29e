# SPDX-License-Identifier: Apache-2.0
"""Split over ranks on GPUs, with NCCL: the weights of one process, with weights that each has whole, and divided."""

import pytest
import torch
from support.split_over_ranks import DIVIDED, NOT_ON_CARDS, check, program

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_on_gpus_train_as_one_process_does(tmp_path, size):
    if torch.cuda.device_count() < size:
        pytest.skip(f"needs {size} CUDA devices")
    check(tmp_path, size, names=[name for name in program().CASES if name not in NOT_ON_CARDS])


def test_divided_weights_on_gpus_are_trained_as_whole_ones_are(tmp_path):
    check(tmp_path, 2, "fsdp", [name for name in DIVIDED if name not in NOT_ON_CARDS])
