# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that ranks write in pieces from GPUs, over NCCL: each reads its own again, and the bits are the same."""

import re
from pathlib import Path

import pytest
import torch
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "divided.py"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


def test_pieces_of_two_gpus_are_read_again_with_the_same_bits(tmp_path):
    told = []
    for epochs in (1, 2):
        finished = on_ranks(PROGRAM, tmp_path, epochs)
        assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
        assert "in pieces" in finished[0].out
        told.append(
            [
                {
                    found
                    for each in finished
                    for found in re.findall(rf"^{what} with (.*)$", each.out, re.MULTILINE)
                }
                for what in ("began", "ends")
            ]
        )
    (_, ended), (begun, _) = told
    assert len(begun) == 1
    assert begun == ended
