# SPDX-License-Identifier: Apache-2.0
"""`truestep doctor` and `truestep read` as processes: status, streams, what a script may do to them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import warm

TRAINING = """\
import sys
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
print("arguments", *sys.argv[1:])
"""
FAULTY = TRAINING.replace("    opt.zero_grad()\n", "")


def truestep(*arguments, cwd, **environment):
    surroundings = {**os.environ, "PYTHONPATH": warm.paths(), "NO_COLOR": "1", **environment}
    return warm.run("-m", "truestep", *arguments, cwd=cwd, env=surroundings)


def script(folder, text, name="train.py"):
    path = folder / name
    path.write_text(text, "utf-8")
    return path.name


def run_json(folder, text, *options):
    ran = truestep("doctor", "--json", *options, script(folder, text), cwd=folder)
    return ran, json.loads(ran.stdout)


def test_a_clean_script_keeps_its_output_and_gives_0(tmp_path):
    ran = truestep("doctor", script(tmp_path, TRAINING), "--lr", "3", "-x", cwd=tmp_path)
    assert ran.stdout == "arguments --lr 3 -x\n"
    assert "watched 8 steps of 8: net (Sequential); opt (SGD)" in ran.stderr
    assert ran.returncode == 0
    assert "nothing found" in ran.stderr
    assert "\x1b" not in ran.stderr


def test_a_run_without_a_step_is_not_called_clean(tmp_path):
    text = TRAINING.replace("range(8)", "range(int(sys.argv[1]))")
    ran = truestep("doctor", script(tmp_path, text), "0", cwd=tmp_path)
    assert ran.returncode == 0
    assert "no step was watched" in ran.stderr
    assert "no optimizer stepped, so nothing was seen of a training" in ran.stderr
    assert "do the script's arguments make it take a step?" in " ".join(ran.stderr.split())
    assert "nothing found" not in ran.stderr


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("net.eval()", "these checks that read evaluations found nothing: "),
        ("pass", "EVAL008 found what is shown; these checks that read evaluations found nothing: "),
    ],
)
def test_a_script_that_only_evaluates_says_which_checks_held(tmp_path, mode, told):
    text = (
        "import torch\nfrom torch import nn\nnet = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))\n"
        "torch.save(net.state_dict(), 'w.pt')\nnet.load_state_dict(torch.load('w.pt'))\n"
        f"{mode}\ncorrect = 0\nwith torch.no_grad():\n    for x, y in [(torch.ones(4, 2), torch.ones(4).long())] * 3:\n"
        "        correct += (net(x).argmax(1) == y).sum().item()\nprint(correct / 12)\n"
    )
    said = " ".join(truestep("doctor", script(tmp_path, text), cwd=tmp_path).stderr.split())
    assert f"nothing was seen of a training: net (Sequential) was called, and {told}" in said
    assert ("EVAL008" in said.partition("found nothing: ")[2]) is (mode != "pass")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "raise ValueError('no such\\nfolder')",
            "the script ended before in train.py:1, by ValueError: no such",
        ),
        ("import nothing_of_this_name", "by ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("import sys; sys.exit(3)", "the script ended before, with status 3; what it printed says why"),
    ],
)
def test_a_script_that_ended_before_a_step_says_by_what(tmp_path, line, why):
    ran = truestep("doctor", script(tmp_path, f"{line}\n{TRAINING}"), cwd=tmp_path)
    said = " ".join(ran.stderr.split())
    assert why in said.partition("nothing was seen of a training: ")[2]
    assert "do the script's arguments" not in said


def test_a_finding_gives_1_and_names_the_line_once(tmp_path):
    ran, document = run_json(tmp_path, FAULTY)
    assert ran.returncode == 1
    assert [(each["code"], each["line"], each["seen"]) for each in document["findings"]] == [
        ("GRAD001", 13, "read and ran")
    ]
    assert document["script"]["status"] == 0
    assert "arguments" in ran.stderr  # the document is alone on stdout


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("concise", "train.py:13:5: bug GRAD001 "),
        ("github", "::error file=train.py,line=13,col=5,title=GRAD001 "),
    ],
)
@pytest.mark.parametrize("to_file", [False, True])
def test_the_outputs_of_read_are_those_of_the_doctor(tmp_path, output, line, to_file):
    options = ["--output", output, *(["--report", "found.txt"] if to_file else [])]
    ran = truestep("doctor", *options, script(tmp_path, FAULTY), cwd=tmp_path)
    assert ran.returncode == 1
    found = (tmp_path / "found.txt").read_text("utf-8") if to_file else ran.stdout
    assert [each[: len(line)] for each in found.splitlines() if "arguments" not in each] == [line]
    read = truestep("read", "--output", output, "train.py", cwd=tmp_path).stdout
    assert [each.partition(" GRAD001")[0] for each in read.splitlines()] == [
        each.partition(" GRAD001")[0] for each in found.splitlines()
    ]


def test_fail_on_and_ignore_decide_the_status(tmp_path):
    assert run_json(tmp_path, FAULTY, "--ignore", "GRAD001")[0].returncode == 0
    assert run_json(tmp_path, FAULTY, "--select", "LOSS")[0].returncode == 0
    hidden = FAULTY.replace("opt.step()", "opt.step()  # truestep: ignore[GRAD001]")
    ran, document = run_json(tmp_path, hidden)
    assert (ran.returncode, document["findings"]) == (0, [])
    assert document["num_hidden"] >= 1


def test_a_baseline_hides_what_was_there(tmp_path):
    name = script(tmp_path, FAULTY)
    assert truestep("read", "--write-baseline", "known.json", name, cwd=tmp_path).returncode == 0
    assert truestep("read", "--baseline", "known.json", name, cwd=tmp_path).returncode == 0
    assert truestep("read", name, cwd=tmp_path).returncode == 1


def test_the_script_s_own_status_wins(tmp_path):
    ran, document = run_json(tmp_path, FAULTY + "sys.exit(7)\n")
    assert ran.returncode == 7
    assert document["script"]["status"] == 7
    assert [each["code"] for each in document["findings"]] == ["GRAD001"]


def test_an_exception_is_shown_as_python_shows_it(tmp_path):
    text = TRAINING + "def fail():\n    raise ValueError('mine')\nfail()\n"
    plain = warm.run(script(tmp_path, text), cwd=tmp_path)
    ran, document = run_json(tmp_path, text)
    assert ran.returncode == plain.returncode == 1
    assert plain.stderr.splitlines()[-1] in ran.stderr
    files = re.findall(r'File "(.+)", line', ran.stderr)
    assert files == [str(tmp_path / "train.py")] * 2
    assert (document["script"]["error"], document["script"]["error_line"]) == ("ValueError: mine", 17)


def test_a_script_that_python_can_t_parse_is_not_called_clean(tmp_path):
    name = script(tmp_path, "import torch\nprint((1\n")
    ran = truestep("doctor", name, cwd=tmp_path)
    assert ran.returncode == 1
    assert f"{name}:2  the script raised SyntaxError: '(' was never closed" in ran.stderr
    assert ran.stderr.rstrip().endswith("nothing of it was run, read or watched.")
    assert "nothing found" not in ran.stderr
    assert "not run:" not in ran.stderr
    read = truestep("read", name, cwd=tmp_path)
    assert read.returncode == 2
    assert f"{name}  not read: SyntaxError" in read.stdout
    assert read.stdout.endswith("No file could be read, so nothing was looked for.\n")
    assert "nothing found" not in read.stdout


def test_a_warning_of_torch_points_at_the_line_of_the_user(tmp_path):
    text = TRAINING.replace("F.cross_entropy(net(x), y)", "F.mse_loss(net(x), torch.zeros(16, 1))")
    name = script(tmp_path, text)
    ran = truestep("doctor", "--ignore", "LOSS", name, cwd=tmp_path)
    assert "train.py:12: UserWarning: Using a target size" in ran.stderr
    assert "train.py:12  torch warned of it, as shown above" in ran.stderr
    assert ran.stderr.count("Using a target size") == 1
    assert "protocol.py" not in ran.stderr
    truestep("doctor", "--report", "report.txt", name, cwd=tmp_path)
    assert "train.py:12  torch warned: UserWarning: Using a target" in (tmp_path / "report.txt").read_text()


def test_a_forward_before_an_error_is_no_evaluation(tmp_path):
    text = TRAINING.replace("nn.ReLU()", "nn.Dropout()").replace(
        "    loss.back", "    assert step < 5\n    loss.back"
    )
    ran, document = run_json(tmp_path, text)
    assert (ran.returncode, document["script"]["error_line"]) == (1, 13)
    assert document["findings"] == []


def test_steps_ends_the_run_early(tmp_path):
    ran, document = run_json(tmp_path, TRAINING.replace("range(8)", "range(10**9)"), "--steps", "5")
    assert (ran.returncode, document["num_steps"], document["script"]["stopped_early"]) == (0, 5, True)


def test_a_module_runs_as_with_python_m(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", "utf-8")
    (package / "train.py").write_text(FAULTY, "utf-8")
    ran = truestep("doctor", "-m", "package.train", "a", "--b", cwd=tmp_path)
    assert ran.stdout == "arguments a --b\n"
    assert ran.returncode == 1
    assert "GRAD001" in ran.stderr


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("def broken(:\n", 1),
        ("", 0),
        ("print = None\n" + TRAINING.replace("print(", "str("), 0),
        ("import os\nos._exit(3)\n", 3),
        ("torch = 1\n", 0),
        ("import threading\nt = threading.Thread(target=sum, args=([1],))\nt.start()\nt.join()\n", 0),
        ("import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)\n", 0),
        ("import sys\nsys.exit('sorry')\n", 1),
        ("import warnings\nwarnings.simplefilter('error')\n" + TRAINING, 0),
    ],
    ids=["syntax", "empty", "print", "exit", "torch", "threads", "fork", "message", "warnings"],
)
def test_a_script_may_do_what_it_likes(tmp_path, text, status):
    ran = truestep("doctor", script(tmp_path, text), cwd=tmp_path)
    assert ran.returncode == status, ran.stderr


def test_a_script_that_is_not_utf8_runs(tmp_path):
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\nprint(len(name))\n")
    ran = truestep("doctor", "latin.py", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "1\n")


def test_unreadable_files_are_named_and_the_others_read(tmp_path):
    (tmp_path / "bad.py").write_bytes(b"import torch\nname = '\xff\xfe'\n")
    script(tmp_path, "import torch\ndef broken(:\n", "syntax.py")
    script(tmp_path, FAULTY)
    ran = truestep("read", "--output", "json", ".", cwd=tmp_path)
    document = json.loads(ran.stdout)
    assert sorted(Path(each["path"]).name for each in document["unreadable"]) == ["bad.py", "syntax.py"]
    assert [each["code"] for each in document["findings"]] == ["GRAD001"]


def test_a_file_of_twenty_thousand_lines_is_read(tmp_path):
    body = "".join(f"def f{number}(x):\n    return x.view(-1, {number})\n" for number in range(10_000))
    ran = truestep("read", script(tmp_path, FAULTY + body), cwd=tmp_path)
    assert ran.returncode == 1
    assert "GRAD001" in ran.stdout


def test_a_missing_script_and_an_unknown_code_are_usage_errors(tmp_path):
    assert truestep("doctor", "nowhere.py", cwd=tmp_path).returncode == 2
    ran = truestep("read", "--select", "GRADE", ".", cwd=tmp_path)
    assert ran.returncode == 2
    assert "'GRAD'" in ran.stderr
    assert truestep("read", "--write-baseline", "no/known.json", ".", cwd=tmp_path).returncode == 2


def test_a_baseline_that_the_settings_name_is_written_anew_in_full(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.truestep]\nbaseline = "known.json"\n')
    (tmp_path / "train.py").write_text("import torch\nloss = torch.load('a', weights_only=False)\n")
    for _ in range(2):  # before there is one, and over the one that is there
        assert truestep("read", "--write-baseline", "known.json", ".", cwd=tmp_path).returncode == 0
        assert "1 hidden" in truestep("read", ".", cwd=tmp_path).stdout


def test_sarif_names_rule_line_and_level(tmp_path):
    ran = truestep("read", "--output", "sarif", script(tmp_path, FAULTY), cwd=tmp_path)
    log = json.loads(ran.stdout)["runs"][0]
    result = log["results"][0]
    assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "GRAD001"
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 13


def test_a_page_shows_its_code_to_the_letter(tmp_path):
    assert (
        "self.layers = [nn.Linear(3, 3) for _ in range(4)]"
        in truestep("checks", "PARAM001", cwd=tmp_path).stdout
    )


def test_a_report_that_can_t_be_written_is_refused_before_the_run(tmp_path):
    ran = truestep("doctor", "--report", "none/report.txt", script(tmp_path, TRAINING), cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "none" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_error_that_passes_our_wrappers_shows_none_of_them(tmp_path):
    text = TRAINING.replace("loss.backward()", "net(x).backward()")
    name = script(tmp_path, text)
    plain = warm.run(name, cwd=tmp_path)
    watched = truestep("doctor", "--report", "report.txt", name, cwd=tmp_path)
    assert "grad can be implicitly created only for scalar outputs" in plain.stderr
    shown, _, note = watched.stderr.partition("truestep explains: ")
    assert shown == plain.stderr
    assert note.startswith("backward-of-many-values")


def test_a_script_finds_the_main_module_that_python_makes(tmp_path):
    text = "import sys, json\nprint(sorted(vars()), type(__loader__).__name__, sys.excepthook is sys.__excepthook__)\n"
    name = script(tmp_path, text)
    plain = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert truestep("doctor", name, cwd=tmp_path).stdout == plain.stdout


def test_a_script_with_a_watch_of_its_own_runs_on(tmp_path):
    lines = FAULTY.replace(
        "for step", "import truestep as ts\nwith ts.watch() as own:\n  for step"
    ).splitlines()
    start = next(i for i, line in enumerate(lines) if "for step" in line)
    text = "\n".join(
        [*lines[: start + 1], *("  " + line for line in lines[start + 1 : -1]), "print(own.findings)"]
    )
    ran, document = run_json(tmp_path, text)
    assert [each["code"] for each in document["findings"]] == ["GRAD001"]
    assert "[]" in ran.stderr


def test_checks_lists_and_shows_pages(tmp_path):
    listed = truestep("checks", cwd=tmp_path).stdout
    assert "GRAD001" in listed
    page = truestep("checks", "backward-without-zero-grad", cwd=tmp_path).stdout
    assert page.startswith("GRAD001")
    assert "Fix:" in page
    assert truestep("checks", "GRAD999", cwd=tmp_path).returncode == 2


IDENTICAL = """\
import random
import sys
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0); random.seed(0); np.random.seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.StepLR(opt, 2)
scaler = torch.amp.GradScaler("cpu")
data = TensorDataset(torch.randn(256, 4), torch.randint(3, (256,)))
loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
for epoch in range(3):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    sched.step()
    net.eval()
    with torch.no_grad():
        net(data.tensors[0])
torch.save(
    {
        "net": net.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict(),
        "torch": torch.get_rng_state(), "random": torch.tensor([random.random(), np.random.rand()]),
    },
    sys.argv[1],
)
"""


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree, key=str) for leaf in leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for each in tree for leaf in leaves(each)]
    return [tree]


def test_a_watched_run_ends_bit_identical(tmp_path):
    import torch

    name = script(tmp_path, IDENTICAL)
    assert warm.run(name, "plain.pt", cwd=tmp_path).returncode == 0
    ran = truestep("doctor", name, "watched.pt", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    plain, watched = (leaves(torch.load(tmp_path / each)) for each in ("plain.pt", "watched.pt"))
    assert len(plain) == len(watched)
    for first, second in zip(plain, watched, strict=True):
        same = torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second
        assert same


def test_models_are_named_by_the_users_variables(tmp_path):
    layers = "nn.Sequential(nn.BatchNorm1d(4), nn.Softmax(0), "
    mixed = TRAINING.replace("nn.Sequential(", layers).replace("net", "critic")
    _, document = run_json(tmp_path, mixed + "critic(torch.randn(8, 4)).sum().item()\n")
    models = {each["code"]: each["evidence"].get("model") for each in document["findings"]}
    assert models["EVAL002"] == models["DATA015"] == "critic (Sequential)"
