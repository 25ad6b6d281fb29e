# SPDX-License-Identifier: Apache-2.0
"""A module's names that the learner's hide are named where its author chose them, and not where a library's base class has them."""

import sys
import warnings

import pytest
import torch
from torch import nn

import truestep as ts


@pytest.mark.parametrize(("place", "num_told"), [("site-packages/others.py", 0), ("own.py", 1)])
def test_what_a_library_gives_each_module_is_no_choice_of_the_authors(tmp_path, monkeypatch, place, num_told):
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        "from torch import nn\nclass Base(nn.Linear):\n    def optimizers(self):\n        return []\n"
    )
    monkeypatch.syspath_prepend(str(file.parent))
    base = __import__(file.stem).Base
    monkeypatch.setitem(sys.modules, file.stem, sys.modules[file.stem])
    net: nn.Module = type("Net", (base,), {"__module__": "__main__"})(2, 1)
    run = ts.Run(tmp_path / "run", doctor=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.learner(net, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    assert sum("net.optimizers is the learner's" in str(each.message) for each in caught) == num_told
