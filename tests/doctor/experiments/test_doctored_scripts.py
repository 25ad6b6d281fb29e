# SPDX-License-Identifier: Apache-2.0
"""`truestep doctor` experiments with a script and leaves it as it was: output, files, weights; the report says what came of it."""

import functools
import json
import re
from pathlib import Path

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched
from support import warm

from truestep.doctor.catalogue import checks
from truestep.doctor.experiments.experiment_report import experiment_report_lines
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection

pytestmark = needs_forks
SCRIPT = """
import logging, sqlite3, sys, random
import numpy as np, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def evaluate(net, loader):
    net.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return correct / len(loader)

if __name__ == "__main__":
    torch.manual_seed(0)
    logging.basicConfig(filename="train.log", level=logging.INFO)
    store = sqlite3.connect("runs.db")
    store.execute("create table losses (value real)")
    data, held = (TensorDataset(torch.randn(n, 4), torch.arange(n) % 3) for n in (64, 20))
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
    opt = torch.optim.Adam(net.parameters())
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=WORKERS, persistent_workers=WORKERS > 0)
    for epoch in range(2):
        for x, y in loader:
            x += 0.01 * torch.randn_like(x)
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            store.execute("insert into losses values (?)", (loss.item(),))
            logging.info("loss %.6f", loss.item())
        torch.save(net.state_dict(), "net.pt")
        print(f"accuracy {evaluate(net, DataLoader(held, batch_size=8)):.4f}")
    store.commit()
    print(sum(each.double().sum().item() for each in net.parameters()))
    print(torch.rand(()).item(), random.random(), np.random.rand())
"""


def run(folder, *command):
    folder.mkdir()
    (folder / "main.py").write_text(SCRIPT.replace("WORKERS", command[-1]))
    done = warm.run(*command[:-1], cwd=folder)
    files = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
    return done, files


@pytest.fixture(scope="module")
def plainly(tmp_path_factory):
    """The script without the doctor, run once for each number of workers."""
    return functools.cache(
        lambda num_workers: run(tmp_path_factory.mktemp("plain") / "in", "main.py", num_workers)
    )


# an order that changes the figure; no criterion with options; nothing printed behind an epoch
NOT_HERE = {"REL009", "REL013", "REL014"}


@pytest.mark.sliced(2)
@pytest.mark.parametrize("num_workers", ["0", "2"])
def test_the_script_is_as_without_and_the_report_has_what_came_of_it(num_workers, plainly, tmp_path):
    plain, files = plainly(num_workers)
    command = ("-m", "truestep", "doctor", "--preview", "--select", "REL", "--report", "../report.json")
    done, same_files = run(tmp_path / "watched", *command, "--json", "main.py", num_workers)
    assert done.stdout.splitlines()[:-1] == plain.stdout.splitlines()[:-1]
    assert done.stdout.split()[-3] == plain.stdout.split()[-3]
    assert same_files == files
    report = json.loads((tmp_path / "report.json").read_text())
    assert [each["code"] for each in report["findings"]] == ["REL008"]
    relations = report["experiments"]["relations"]
    assert {code for code, each in relations.items() if each["outcome"] == "not_tried"} <= NOT_HERE
    assert relations["REL002"]["outcome"] == "held"
    assert report["experiments"]["num_children"] > 5


RIGHT = sorted((Path(__file__).parent / "right").glob("*.py"))
SEEDED = "import random, numpy; random.seed(1); numpy.random.seed(1)\n"
ITS_END = """
import random, numpy, torch
print("streams", torch.rand(()).item(), random.random(), numpy.random.rand())
nets = [each for each in list(globals().values()) if isinstance(each, torch.nn.Module)]
print("weights", [each.double().sum().item() for net in nets for each in net.state_dict().values()])
"""


@pytest.mark.sliced(20)
@pytest.mark.parametrize("script", RIGHT, ids=lambda path: path.stem)
def test_a_right_program_by_hand_ends_as_without(script, tmp_path):
    ended = []
    for name, command in {
        "plain": (),
        "doctor": ("-m", "truestep", "doctor", "--preview", "--select", "REL"),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text(SEEDED + script.read_text("utf-8") + ITS_END)
        done = warm.run(*command, "main.py", cwd=tmp_path / name)
        told = [line for line in done.stdout.splitlines() if "runtime" not in line and "it/s" not in line]
        until = next(number for number, line in enumerate(told) if line.startswith("weights"))
        files = {each.name: each.read_bytes() for each in (tmp_path / name).rglob("*") if each.is_file()}
        ended.append((done.returncode, told[: until + 1], files))
    assert ended[0] == ended[1]


def test_the_report_says_what_held_and_what_is_broken():
    watch = watched(checks()["REL009"].page().bad, ("REL008", "REL009"))
    assert re.fullmatch(
        r"experiments: 0 relations hold; 1 broken \(REL009\); 1 not tried: mend REL009 first, because the order "
        r"of the batches alone changes the figure \(\d+ children in [\d.]+ s\)",
        experiment_report_lines(watch.experiments)[0],
    )
    watch = watched(checks()["REL009"].page().bad, ("REL008", "REL009", "REL013"))
    assert len(experiment_report_lines(watch.experiments)) == 1
    first, *reasons = experiment_report_lines(watch.experiments, abstentions=True)
    assert "; 1 not tried: mend REL009 first" in first
    assert "; 1 does not apply (" in first
    assert [each.split(":")[1] for each in reasons] == [" REL013"]


def test_by_default_the_relations_that_were_true_of_strangers_code_are_tried():
    wanted = {code for code, each in checks().items() if code.startswith("REL") and not each.is_preview}
    assert wanted == {"REL004", "REL006"}
    for probe, records in ((False, set()), (True, wanted)):
        with Watch(WatchOptions(CheckSelection(), probe=probe)) as watch:
            pass
        assert set(watch.experiments.records) == records
        assert bool(experiment_report_lines(watch.experiments)) is probe


def test_an_ordinary_script_is_told_how_many_relations_hold(plainly, tmp_path):
    plain, files = plainly("0")
    done, same_files = run(tmp_path / "watched", "-m", "truestep", "doctor", "main.py", "0")
    assert "experiments: 2 relations hold; 0 broken; 0 not tried (" in done.stderr
    # the last line is of streams that nobody seeds, but for torch's
    assert done.stdout.splitlines()[:-1] == plain.stdout.splitlines()[:-1]
    assert done.stdout.split()[-3] == plain.stdout.split()[-3]
    assert same_files == files
