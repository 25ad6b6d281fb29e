# SPDX-License-Identifier: Apache-2.0
"""A model of indices that is given random numbers says what to give."""

import pytest
import torch
from torch import nn

import truestep as ts


@pytest.mark.parametrize("shape", [(24, 32), (7,)])
def test_an_embedding_of_random_numbers_says_which_dtype(shape):
    sizes = ",".join(map(str, shape))
    with pytest.raises(ts.ModelError) as told:
        ts.summary(nn.Sequential(nn.Embedding(9, 2), nn.Linear(2, 1)), torch.rand(*shape))
    assert str(told.value).endswith(f"on the command line --input {sizes}:int64")
    with pytest.raises(ts.ModelError) as other:
        ts.summary(nn.Linear(3, 1), torch.rand(*shape))
    assert "int64" not in str(other.value)
