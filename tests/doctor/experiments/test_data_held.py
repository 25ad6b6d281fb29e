# SPDX-License-Identifier: Apache-2.0
"""Data sets that never give some of their rows, and maps that are not inverse, are told of; right ones are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
LOOP = """
import numpy as np
class Held(torch.utils.data.Dataset):
    def __init__(self):
        self.points, self.labels = torch.randn(96, 4), torch.arange(96) % 3
        self.table = {"x": np.random.randn(96, 4).astype("float32"), "y": np.arange(96) % 3}
        self.codes = torch.eye(3).repeat(2, 2)[:, :4]
        self.order = torch.randperm(96)
        self.last, self.buffer = 0, torch.zeros(4)
        MORE
    def __len__(self):
        return LENGTH
    def __getitem__(self, i):
        GIVEN
for x, y in DataLoader(Held(), batch_size=8, shuffle=True):
    opt.zero_grad()
    F.cross_entropy(net(x.float()), y).backward()
    opt.step()
"""
RIGHT_ROWS = {
    "each its own": ("return self.points[i], self.labels[i]", "96"),
    "by an order": ("i = self.order[i]; return self.points[i], self.labels[i]", "96"),
    "several passes": ("i %= 96; return self.points[i], self.labels[i]", "960"),
    "a part": ("return self.points[i], self.labels[i]", "40"),
    "with noise": ("return self.points[i] + 0.1 * torch.randn(4), self.labels[i]", "96"),
    "of a class's code": ("return self.codes[self.labels[i]], self.labels[i]", "96"),
    "windows": ("return self.points[i : i + 2].mean(0), self.labels[i]", "95"),
    "drawn with repeats": ("i = self.order[i] * 2 // 3; return self.points[i], self.labels[i]", "96"),
    "of a table": ("return self.table['x'][i], self.table['y'][i]", "96"),
    "written into": ("return self.points[i].clone(), self.labels[i]", "96"),
}
UNREAD_ROWS = {
    "modulo": ("i %= 10; return self.points[i], self.labels[i]", "96"),
    "modulo in a table": ("i %= 10; return self.table['x'][i], self.table['y'][i]", "96"),
    "divided": ("i //= 4; return self.points[i], self.labels[i]", "96"),
    "the first": ("return self.points[0], self.labels[0]", "96"),
    "bounded": ("i = min(i, 9); return self.points[i], self.labels[i]", "96"),
    "the last": ("return self.points[-1], self.labels[-1]", "96"),
    "for a trial": ("i = i if i < 5 else 0; return self.points[i], self.labels[i]", "len(self.points)"),
    "a choice that is kept": ("i = int(self.order[0]) % 8; return self.points[i], self.labels[i]", "96"),
    "by a mask of bits": ("i &= 7; return self.points[i], self.labels[i]", "96"),
    "by halves": ("i = i % 2; return self.points[i], self.labels[i]", "len(self.labels)"),
}
GIVEN = "return self.points[i], self.labels[i]"
RIGHT_MAPS = {
    "inverse": "self.names = list('abcd'); self.numbers = {n: i for i, n in enumerate(self.names)}",
    "of texts": "self.i2w = {str(i): w for i, w in enumerate('abcd')}; self.w2i = {w: i for i, w in enumerate('abcd')}",
    "more words": "self.names = list('abcd'); self.numbers = {**{n: i for i, n in enumerate('abcd')}, 'A': 0}",
    "other things": "self.names = list('abcd'); self.counts = {n: 7 for n in 'abcd'}",
    "from 1 on": "self.names = {i: n for i, n in enumerate('abcd', 1)}; self.numbers = {n: i for i, n in self.names.items()}",
    "one map": "self.numbers = {n: i for i, n in enumerate('abcd')}",
}
WRONG_MAPS = {
    "a token twice": "self.names = ['<unk>', *'abcdef', '<unk>']; self.numbers = {n: i for i, n in enumerate(self.names)}",
    "written over": "self.i2w = dict(enumerate(['<unk>', *'abcdef'])); self.w2i = {w: i for i, w in self.i2w.items()}; "
    "self.i2w[7] = '<unk>'; self.w2i['<unk>'] = 7",
    "texts written over": "self.w2i = {w: i for i, w in enumerate('abcdefa')}; "
    "self.i2w = {str(i): w for i, w in enumerate('abcdefa')}",
    "two exchanged": "self.names = [*'abcdefghijkl']; self.numbers = {n: i for i, n in enumerate('bacdefghijkl')}",
    "two words for one": "self.names = [*'abcdefg']; self.numbers = {n: i for i, n in enumerate('abcdefg')}; self.numbers['g'] = 0",
}  # fmt: skip


def watched_loop(given, length="96", more="pass"):
    code = LOOP.replace("GIVEN", given).replace("LENGTH", length).replace("MORE", more)
    return watched(code, ("REL022", "REL023"))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT_ROWS)
def test_rows_that_are_given_are_silent(name):
    assert [each.message for each in watched_loop(*RIGHT_ROWS[name]).findings] == []


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", UNREAD_ROWS)
def test_rows_that_no_index_gives_are_told(name):
    assert [each.code for each in watched_loop(*UNREAD_ROWS[name]).findings] == ["REL022"]


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT_MAPS)
def test_maps_that_lead_back_are_silent(name):
    assert [each.message for each in watched_loop(GIVEN, more=RIGHT_MAPS[name]).findings] == []


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", WRONG_MAPS)
def test_maps_that_lead_elsewhere_are_told(name):
    assert [each.code for each in watched_loop(GIVEN, more=WRONG_MAPS[name]).findings] == ["REL023"]
