# SPDX-License-Identifier: Apache-2.0
"""`truestep schedule`, `summary` and `export` as a user calls them: files that do not fit, statuses, one document."""

import json
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

FILE = """
import torch, truestep as ts
print("noise on stdout")

def make_schedule(optimizer):
    return ts.warmup_cosine(optimizer, warmup_steps=10, total_steps=100)

def its_own():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)

def epochs(optimizer, lengths): ...

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))

a_model = make_model()

def make_batch():
    return torch.zeros(5, 4)

def sized(width):
    return torch.nn.Linear(width, 2)

class OnCuda(torch.nn.Module):
    def forward(self, x):
        return x.cuda() @ x.cuda().T
"""
TRAINS = """
import torch
net = torch.nn.Linear(2, 1)
for _ in range(1000):
    net(torch.ones(1, 2)).sum().backward()
def make_schedule(optimizer): ...
"""


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    """Run the command in this process: a new one pays two seconds for torch."""
    from truestep.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
    before, paths = set(sys.modules), list(sys.path)
    (tmp_path / "sched_file.py").write_text(FILE)
    (tmp_path / "sched_trains.py").write_text(TRAINS)
    (tmp_path / "sched_broken.py").write_text("def (:\n")
    (tmp_path / "sched_raises.py").write_text("x = 1\nraise RuntimeError('no data')\n")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["truestep", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return SimpleNamespace(status=ended.value.code or 0, **capfd.readouterr()._asdict())

    yield run
    sys.path[:] = paths
    for name in set(sys.modules) - before:
        if "sched_" in name:
            del sys.modules[name]


def test_one_document_and_files(call, tmp_path):
    ended = call(
        "schedule", "sched_file.py:make_schedule", "--steps", "200", "--lr", "0.1", "--json", "--out", "a.svg"
    )
    assert ended.status == 0, ended.err
    document = json.loads(ended.out)
    assert document["curves"][0]["landmarks"]["peak"] == 0.1
    assert "noise on stdout" in ended.err
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_several_on_a_screen(call):
    ended = call("schedule", "sched_file.py:make_schedule", "sched_file.py:its_own", "--steps", "200")
    assert ended.status == 0, ended.err
    assert "its_own" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("missing.py:make_schedule", 2, "There is no file missing.py"),
        ("sched_file.py:make_scedule", 2, "Did you mean 'make_schedule'"),
        ("sched_file.py", 2, "FILE.py:NAME"),
        ("sched_file.py:epochs", 2, "neither with an optimizer alone nor without arguments"),
        ("sched_broken.py:x", 2, "not valid Python"),
        ("sched_raises.py:x", 1, "RuntimeError at line 2: no data"),
        (
            "sched_trains.py:make_schedule",
            2,
            "starts a training (backward, line 5). Put what trains under: if __name__",
        ),
    ],
)
def test_files_that_do_not_fit(call, target, status, said):
    ended = call("schedule", target, "--steps", "20")
    assert (ended.status, ended.out.replace("noise on stdout\n", "")) == (status, "")
    assert said in " ".join(ended.err.split())


@pytest.mark.parametrize("name", ["make_model", "a_model"])
@pytest.mark.parametrize("given", [["--input", "5,4"], ["--batch", "sched_file.py:make_batch"]])
def test_a_summary_is_one_document(call, name, given):
    ended = call("summary", f"sched_file.py:{name}", *given, "--json")
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["multiply_adds"] == 5 * (12 + 6)
    shown = call("summary", "sched_file.py:make_model", *given, "--depth", "1", "--time").out
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["sched_file.py:make_model"], 2, "Say what the model takes"),
        (["sched_file.py:make_model", "--input", "1,x"], 2, "is no shape"),
        (
            ["sched_file.py:make_model", "--input", "1,7"],
            1,
            "failed in 0 (Linear), which got [1, 7] float32 on cpu",
        ),
        (["sched_file.py:sized", "--input", "1,7"], 2, "can't be called without arguments"),
        (["sched_file.py:make_batch", "--input", "1,7"], 2, "needs a module"),
        (["sched_file.py:make_model", "--input", "1,4", "--precision", "int4"], 2, "float32"),
    ],
)
def test_models_that_do_not_fit(call, arguments, status, said):
    ended = call("summary", *arguments)
    assert (ended.status, ended.out.replace("noise on stdout\n", "")) == (status, "")
    assert said in " ".join(ended.err.split())


def test_a_model_that_runs_on_cuda_alone(call):
    import torch

    if torch.cuda.is_available():
        pytest.skip("it runs here")
    ended = call("summary", "sched_file.py:OnCuda", "--input", "2,2")
    assert ended.status == 1
    assert "OnCuda, which got [2, 2] float32 on cpu" in ended.err


def test_an_export_and_what_is_missing(call):
    ended = call("export", "sched_file.py:make_model", "a.onnx", "--input", "5,4", "--json")
    if not all(map(find_spec, ("onnx", "onnxruntime", "onnxscript"))):
        assert ended.status == 3
        assert "pip install 'truestep[onnx]'" in ended.err
        return
    assert ended.status == 0, ended.err
    assert [each["batch_size"] for each in json.loads(ended.out)["comparisons"]] == [5, 10]


def test_a_graph_on_a_screen_in_a_document_and_in_files(call, tmp_path):
    files = ["--out", "g.mmd", "--out", "g.dot"]
    ended = call("graph", "sched_file.py:make_model", "--input", "5,4", *files)
    assert ended.status == 0, ended.err
    assert "1 Linear, 8  5 × 2" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    assert (tmp_path / "g.mmd").read_text().startswith("flowchart")
    asked = ("--kind", "autograd", "--depth", "1", "--saved", "--json")
    document = json.loads(call("graph", "sched_file.py:make_model", "--input", "5,4", *asked).out)
    assert document["schema_version"] == 1
    assert document["saved_bytes"] > 0
    drawn = call("graph", "sched_file.py:make_model", "--input", "5,4", "--out", "g.html")
    assert drawn.status == (0 if find_spec("pygraphviz") else 3), drawn.err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--input", "1,7"], 1, "failed in 0 (Linear), which got [1, 7] float32 on cpu"),
        (["--input", "1,4", "--depth", "7"], 2, "the graph has the depths 1 to 1"),
        (["--input", "1,4", "--out", "g.png"], 2, ".mmd"),
        (["--input", "1,4", "--kind", "both"], 2, "autograd"),
        ([], 2, "Say what the model takes"),
    ],
)
def test_graphs_that_there_are_not(call, arguments, status, said):
    ended = call("graph", "sched_file.py:make_model", *arguments)
    assert (ended.status, ended.out.replace("noise on stdout\n", "")) == (status, "")
    assert said in " ".join(ended.err.split())


def test_help_imports_no_torch():
    code = (
        "import sys; from truestep.cli.main import app; sys.argv = ['t', 'schedule', '--help']\ntry: app()\n"
        "except SystemExit: sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=60).returncode
        == 0
    )
