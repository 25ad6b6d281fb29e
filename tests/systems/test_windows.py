# SPDX-License-Identifier: Apache-2.0
"""What runs on Linux runs without what Windows lacks, in processes of their own: `windows/sitecustomize.py` says what that is."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import warm
from torch import nn

import truestep as ts

pytestmark = pytest.mark.xdist_group("windows")  # one process that the others are forked from
HERE = Path(__file__).parent / "windows"
SPAWNED = """
import sys
import torch
import truestep as ts
from torch import nn

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((4,), index / 64) + ts.randn(4) / 8

def main(workers):
    run = ts.Run("runs/x", seed=1, progress=False, doctor=False, saving=ts.Saving(every_steps=3))
    net = run.learner(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1)), lambda p: torch.optim.AdamW(p, lr=1e-2))
    data = run.data(Rows(), batch_size=4, shuffle=True, num_workers=workers)
    for epoch in run.epochs(3):
        for rows in run.batches(data):
            net.update(lambda rows: net(rows).square().mean(1), rows)
            if run.step == 20:
                print("at 20", flush=True)
                sys.stdin.readline()
    print([p.double().sum().item().hex() for p in net.parameters()])

if __name__ == "__main__":
    main(int(sys.argv[1]))
"""
MISTAKE = """
import torch
from torch import nn
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    loss = nn.CrossEntropyLoss()(torch.softmax(net(x), 1), y)
    loss.backward()
    optimizer.step()
"""


def environment(folder, **more):
    paths = os.pathsep.join((str(HERE), warm.paths()))
    return {**os.environ, "PYTHONPATH": paths, "STANDS_IN_FOR_WINDOWS": str(folder), **more}


class Started(warm.Process):
    """A process that is written to and read from while it runs."""

    def __init__(self, folder, *command):
        given, stdin = os.pipe()
        stdout, output = os.pipe()
        super().__init__(
            *command, cwd=folder, env=environment(folder), stdin=given, stdout=output, windows=HERE
        )
        os.close(given)
        os.close(output)
        self.stdin, self.stdout = open(stdin, "w"), open(stdout)  # noqa: PTH123, SIM115

    def communicate(self, text=""):
        with contextlib.suppress(BrokenPipeError), self.stdin:
            self.stdin.write(text)
        with self.stdout:
            said = self.stdout.read()
        self.wait()
        return said, self.error


def run(folder, *command, **more):
    return warm.run(*command, cwd=folder, env=environment(folder, **more), input="\n", windows=HERE)


def ends(folder, *command):
    ended = run(folder, *command)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.sliced(6)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("end", "status"),
    [(signal.SIGINT, 130), (signal.SIGUSR2, 149), (signal.SIGKILL, -9)],
    ids=["Ctrl+C", "Ctrl+Break", "killed"],
)
def test_a_training_that_is_ended_goes_on_to_the_bits_that_it_has_on_linux(tmp_path, workers, end, status):
    folders = [tmp_path / name for name in ("linux", "windows")]
    for folder in folders:
        folder.mkdir()
        (folder / "train.py").write_text(SPAWNED)
    linux = warm.run("train.py", str(workers), cwd=folders[0], input="\n")
    training = Started(folders[1], "train.py", str(workers))
    assert training.stdout.readline() == "at 20\n", training.communicate("\n")
    training.send_signal(end)
    output = training.communicate("\n")
    assert training.returncode == status, output
    assert ends(folders[1], "train.py", str(workers)).splitlines()[-1] == linux.stdout.splitlines()[-1]


def test_a_folder_in_which_another_trains_is_refused_with_its_name(tmp_path):
    (tmp_path / "train.py").write_text(SPAWNED)
    first = Started(tmp_path, "train.py", "0")
    assert first.stdout.readline() == "at 20\n", first.communicate("\n")
    second = Started(tmp_path, "train.py", "0")
    said = second.communicate("\n")[1]
    first.communicate("\n")
    assert f"process {first.pid}" in said
    assert (first.returncode, second.returncode) == (0, 1)


RANKS = """
import torch
import truestep as ts
from torch import nn

if __name__ == "__main__":
    run = ts.Run("runs/x", seed=1, progress=False, doctor=False, saving=ts.Saving(every_steps=3))
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.AdamW(p, lr=1e-2))
    data = run.data(torch.linspace(0, 1, 256).reshape(64, 4), batch_size=8, shuffle=True)
    for _ in run.epochs(2):
        for rows in run.batches(data):
            net.update(lambda rows: net(rows).square().mean(1), rows)
    print(run.rank, run.world_size, [p.double().sum().item().hex() for p in net.parameters()])
"""


@pytest.mark.slow
def test_two_processes_end_with_the_bits_that_they_have_on_linux(tmp_path):
    folders = [tmp_path / name for name in ("linux", "windows")]
    command = ["-m", "truestep", "launch", "-n", "2", "train.py"]
    for folder in folders:
        folder.mkdir()
        (folder / "train.py").write_text(RANKS)
    found = ends(folders[1], *command)
    assert found.startswith("[rank0]:0 2 [")
    assert found == warm.run(*command, cwd=folders[0]).stdout


IMPORTS = """
import importlib, pkgutil, truestep
for each in pkgutil.walk_packages(truestep.__path__, "truestep."):
    if not each.name.startswith(("truestep.doctor.forks.", "truestep.__main__")):  # the one is of Linux alone, the other runs
        importlib.import_module(each.name)
for name in truestep.__all__:
    getattr(truestep, name)
from truestep.core.os_specific import STOPPING_SIGNALS
print(*sorted(STOPPING_SIGNALS.values()))
"""


def test_every_module_is_imported(tmp_path):
    assert ends(tmp_path, "-c", IMPORTS) == "130 143 149\n"


COMMANDS = {
    "read mistake.py": 1,
    "doctor mistake.py": 1,
    "env": 0,
    "gpus": 3,
    "explain mistake.py": 2,
    "explain mistake.log": 1,
    "checks LOSS001": 0,
    "train digits --epochs 1 --out runs/digits": 0,
    "runs": 2,
    "report runs/own": 0,
}


@pytest.mark.sliced(8)
@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=pytest.mark.slow) if "train" in each else each for each in COMMANDS],
)
def test_commands_end_as_elsewhere_behind_a_pipe_of_cp1252(tmp_path, command):
    """The file has a byte order mark and CRLF."""
    if command.startswith("report"):
        with ts.Run(tmp_path / "runs" / "own", progress=False, quiet=True) as run:
            net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
            for _ in run.steps(3):
                net.update(lambda rows: net(rows).square().squeeze(1), torch.ones(2, 2))
    for name in ("mistake.py", "mistake.log"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + MISTAKE.replace("\n", "\r\n").encode())
    ended = subprocess.run(
        [sys.executable, "-m", "truestep", *command.split()],
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONIOENCODING="cp1252"),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == COMMANDS[command], ended.stderr.decode("cp1252")
    assert b"Traceback" not in ended.stderr
    assert ended.stdout.decode("cp1252") or ended.stderr.decode("cp1252")


OWN = """
import torch
import truestep as ts
import layers
run = ts.Run("runs/x", seed=1, progress=False)
net = run.learner(layers.Net(), lambda p: torch.optim.AdamW(p, lr=1e-2))
for _ in run.steps(3):
    net.update(lambda rows: net(rows).square().mean(1), torch.ones(2, 4))
print(run.step)
"""
LAYERS = (
    "from torch import nn\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 1)\n"
)


def test_code_on_another_drive_is_read_and_trained_with(tmp_path, tmp_path_factory):
    """No relative path leads from one drive to another, and `os.path.relpath` raises."""
    elsewhere = tmp_path_factory.mktemp("other drive")
    (elsewhere / "layers.py").write_text(LAYERS)
    (elsewhere / "mistake.py").write_text("import layers\n" + MISTAKE)
    (tmp_path / "train.py").write_text(OWN)
    places = os.pathsep.join((str(HERE), warm.paths(), str(elsewhere)))
    ended = run(tmp_path, "train.py", PYTHONPATH=places)
    assert (ended.returncode, ended.stdout) == (0, "3\n"), ended.stderr
    known = str(tmp_path / "known.json")
    for command in (
        ["read", str(elsewhere), "--write-baseline", known],
        ["read", str(elsewhere), "--baseline", known],
    ):
        ends(tmp_path, "-m", "truestep", *command)


@pytest.mark.parametrize(("length", "status"), [(139, 0), (141, 1), (170, 1), (300, 1)])
@pytest.mark.sliced(4)
def test_a_run_whose_files_would_have_paths_of_260_characters_is_refused_beforehand(tmp_path, length, status):
    below = length - len(str(tmp_path)) - 1
    if below < 2:
        pytest.skip("temporary files have a long path themselves")
    name = "/".join("r" * 20 for _ in range(20))[: below - 1] + "r"
    script = OWN.replace("import layers", "from torch import nn").replace("layers.Net()", "nn.Linear(4, 1)")
    (tmp_path / "train.py").write_text(script.replace("runs/x", name))
    ended = Started(tmp_path, "train.py")
    output, said = ended.communicate()
    assert (ended.returncode, output) == (status, "" if status else "3\n"), said
    if status:
        assert f"has {length} characters" in said.strip().splitlines()[-1]
        assert "LongPathsEnabled" in said


GIVEN = r"""
import truestep as ts
from truestep.cli.object_arguments import _split_target
from truestep.core.os_specific import is_path_with_folder, path_from_file_url
from truestep.mirror.address import check_mirror_address
from truestep.recipes.loading.find import find_recipe
from truestep.run.directory import choose_run_directory

def told(call, *given):
    try:
        return call(*given)
    except ts.OptionError as error:
        return str(error)

assert path_from_file_url("/C:/shared/runs/x") == "C:/shared/runs/x"
assert path_from_file_url("/shared") == "/shared"
assert check_mirror_address("file:///C:/shared/runs/x")
for path in ("runs\\x", "C:\\runs\\x", "runs/x"):
    assert is_path_with_folder(path)
    assert "names a file" in told(choose_run_directory, None, path), path
for path in ("C:\\train.py", "C:/train.py"):
    assert "FILE.py:NAME" in told(_split_target, path)
    assert "There is no file" in told(_split_target, path + ":make")
for path in ("recipes\\mine", "recipes/mine"):
    assert "There is no file" in told(find_recipe, path)
print("ok")
"""


def test_paths_with_drives_and_backslashes_are_taken_for_paths(tmp_path):
    assert ends(tmp_path, "-c", GIVEN) == "ok\n"
