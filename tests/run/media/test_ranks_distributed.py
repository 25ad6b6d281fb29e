# SPDX-License-Identifier: Apache-2.0
"""Of several processes, the first writes its media and the others none; it is said once where theirs are others."""

import re

from support.ranks import finish, start

PROGRAM = """
import sys, torch, truestep as ts
run = ts.Run(sys.argv[1], progress=False, doctor=False)
net = run.learner(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
data = run.data(torch.ones(8, 1), batch_size=4)
for _ in run.epochs(2):
    for batch in run.batches(data):
        update = net.update(lambda rows: net(rows).squeeze(1), batch)
        within = torch.rand(1, 4, 4)
    drawn = torch.rand(1, 4, 4)
    found = float(update.loss)
    run.log(
        accuracy=0.5, words=ts.Text(f"of rank {run.rank}"), own=ts.Image(within), longer=ts.Text("a" * (1 + run.rank)),
        sound=ts.Audio(torch.arange(8.0) / (9 + run.rank), 8000), same=ts.Text("same"), measured=ts.Text(f"{found:.3f}"),
        all_drawn=ts.Image(drawn), counted=ts.Text(f"step {run.step}"), grey=ts.Image(torch.zeros(1, 2, 2)),
    )
    run.log(words_alone=ts.Text(f"of rank {run.rank}"))
"""


def test_rank_0_alone_writes_media_and_those_that_differ_are_named_once(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = finish(start(tmp_path / "program.py", tmp_path / "run", size=2))
    assert [each.status for each in ended] == [0, 0], ended
    files = (tmp_path / "run" / "media" / "words").glob("*.txt")
    assert [file.read_text() for file in files] == ["of rank 0"] * 2
    told = re.findall(r"run\.log\((\w+)=ts\.\w+\(\.\.\.\)\) differs by rank", ended[0].error)
    assert told == ["longer", "own", "sound", "words", "words_alone"]
    assert "differs by rank" not in ended[1].error
