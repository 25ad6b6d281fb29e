# SPDX-License-Identifier: Apache-2.0
"""Of several processes, the first writes its media and the others none."""

from support.ranks import finish, start

PROGRAM = """
import sys, torch, truestep as ts
run = ts.Run(sys.argv[1], progress=False, quiet=True)
run.learner(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
run.log(accuracy=0.5, words=ts.Text(f"of rank {run.rank}"))
run.close()
"""


def test_rank_0_alone_writes_media(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = finish(start(tmp_path / "program.py", tmp_path / "run", size=2))
    assert [each.status for each in ended] == [0, 0], ended
    files = list((tmp_path / "run" / "media").rglob("*.txt"))
    assert [file.read_text() for file in files] == ["of rank 0"]
