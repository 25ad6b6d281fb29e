# SPDX-License-Identifier: Apache-2.0
"""A generator that begins anew with one seed for each sample gives all samples the same noise."""

import pytest

from tests.support.told import loud

DATA = """
import random
import numpy as np
from torch.utils.data import Dataset
class Noisy(Dataset):
    def __init__(self, x, augment=True, epoch=0):
        self.x, self.augment, self.epoch = x, augment, epoch
        self.seed = 7
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        x = self.x[i]
        BODY
        return x
loader = DataLoader(Noisy(torch.randn(20, 3)), batch_size=4, shuffle=True)
"""
SAME = [
    "rng = np.random.default_rng(0)\nx = x + torch.from_numpy(rng.normal(size=3))",
    "if self.augment:\n    x = x + 0.1 * torch.randn(3, generator=torch.Generator().manual_seed(0))",
    "torch.manual_seed(42)\nx = x + torch.randn_like(x)",
    "shift = random.Random(self.seed).uniform(-1, 1)\nx = x + shift",
    "np.random.seed(1)\nx = x * np.random.uniform(0.9, 1.1)",
    "x = x + torch.as_tensor(np.random.RandomState(3).randn(3)) if self.augment else x",
]
OTHER = [
    "rng = np.random.default_rng(i)\nx = x + torch.from_numpy(rng.normal(size=3))",
    "rng = np.random.default_rng([0, self.epoch, i])\nx = x + torch.from_numpy(rng.normal(size=3))",
    "rng = np.random.default_rng()\nx = x + torch.from_numpy(rng.normal(size=3))",
    "if not self.augment:\n    x = x + torch.randn(3, generator=torch.Generator().manual_seed(0))",
    "torch.manual_seed(self.seed + i)\nx = x + torch.randn_like(x)",
    "order = np.random.default_rng(0).permutation(3)\nx = x[order]",
    "x = x[random.Random(0).sample(range(3), 2)]",
    "g = torch.Generator()\ng.manual_seed(hash(i))\nx = x + torch.randn(3, generator=g)",
]


def data_set(body: str) -> str:
    return DATA.replace("BODY", body.replace("\n", "\n        "))


@pytest.mark.parametrize("body", SAME)
def test_one_seed_for_each_sample_is_told_of(body):
    assert loud("DATA003", data_set(body))


@pytest.mark.parametrize("body", OTHER)
def test_a_seed_of_its_own_or_an_order_for_all_is_right(body):
    assert not loud("DATA003", data_set(body))
