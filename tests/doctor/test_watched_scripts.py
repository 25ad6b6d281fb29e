# SPDX-License-Identifier: Apache-2.0
"""Scripts in many habits (classes, trainers, dicts, notebooks) run under watch: planted faults are named, clean ones pass.

The second line of a script says what the run must show, beyond advice.
"""

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo

from truestep.doctor.finding import Severity
from truestep.doctor.runtime.watch import Watch, WatchOptions

SCRIPTS = sorted((Path(__file__).parent / "watched").glob("*.py"))


@pytest.mark.sliced(5)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_gives_what_was_planted_in_it(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    random.seed(0)
    np.random.seed(0)
    torch._dynamo.reset()
    text = script.read_text("utf-8")
    planted = set(
        text.splitlines()[1].removeprefix("# ").replace("clean", "").removeprefix("planted: ").split()
    )
    watch = Watch(WatchOptions(probe=True, is_of_command=True))
    with torch.random.fork_rng(), watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, str(script), "exec"), {"__name__": "__main__"})
    found = {each.code for each in watch.findings if each.severity is not Severity.ADVICE}
    assert found == planted
    assert watch.failures == []
