# SPDX-License-Identifier: Apache-2.0
"""`truestep doctor` on scripts that end, fork, spawn or hide things in every way a script can: real processes."""

import json
import re
import signal
import textwrap

import pytest
from support import warm
from support.ranks import environment, free_port

HEAD = """\
import os, random, signal, sys, threading
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0); random.seed(0); np.random.seed(0)


def train(steps=6, clear=True):
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        if clear:
            opt.zero_grad()
        F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
        opt.step()
    return net
"""
FAULT = HEAD.splitlines().index("        opt.step()") + 1


DOCTOR = ("-m", "truestep", "doctor")


@pytest.fixture
def doctor(tmp_path):
    def run(body, *arguments, options=(), **more):
        (tmp_path / "train.py").write_text(HEAD + body, "utf-8")
        return warm.run(*DOCTOR, *options, "train.py", *arguments, cwd=tmp_path, **more)

    return run


def reported(text):
    return json.loads(text[text.index("{") :])


def found(document):
    return [(each["code"], each["line"]) for each in document["findings"]]


def processes(document):
    return {each["process"]: each["num_steps"] for each in document["processes"]}


# ── how a script can end ──────────────────────────────────────────────────────────────────────────


@pytest.mark.sliced(2)
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os._exit(0)", 1),
        ("os._exit(5)", 5),
        ("sys.exit(4)", 4),
        ("sys.exit()", 1),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGINT)", 130),
        ("raise ValueError('mine')", 1),
    ],
)
def test_however_a_script_ends_its_status_stays_and_the_report_is_given(doctor, end, status):
    ended = doctor(f"train(clear=False)\nprint('trained')\n{end}\n")
    assert ended.returncode == status, ended.stderr
    assert ended.stdout == "trained\n"
    assert re.search(rf"\n  {FAULT}(:\d+)?  bug  GRAD001", ended.stderr), ended.stderr


def test_a_script_killed_outright_just_dies(doctor):
    assert doctor("train()\nos.kill(os.getpid(), signal.SIGKILL)\n").returncode == -signal.SIGKILL


def test_an_interrupt_shows_the_traceback_that_python_shows(doctor):
    ended = doctor("train()\nraise KeyboardInterrupt\n")
    assert (ended.returncode, "KeyboardInterrupt" in ended.stderr) == (130, True)


def test_a_script_may_handle_the_signal_itself(doctor):
    body = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\ntrain()\nos.kill(os.getpid(), signal.SIGTERM)\n"
    assert doctor(body).returncode == 9


@pytest.mark.parametrize(
    ("handler", "status"),
    [  # as Lightning composes it, as a function hands it on, as one puts it back: each once, and as without the doctor
        ("lambda n, f: (told.append(n), [each(n, f) for each in [before] if callable(each)])", 3),
        ("lambda n, f: told.append(before(n, f) if callable(before) else n)", 3),
        ("lambda n, f: (signal.signal(n, before), os.kill(os.getpid(), n))", -signal.SIGTERM),
    ],
)
def test_a_handler_may_call_the_one_that_was_there_before(doctor, handler, status):
    body = f"told, before = [], signal.getsignal(signal.SIGTERM)\nsignal.signal(signal.SIGTERM, {handler})\n"
    ended = doctor(
        body + "train(clear=False)\nos.kill(os.getpid(), signal.SIGTERM)\nsys.exit(3 if told else 4)\n"
    )
    assert (ended.returncode, ended.stderr.count("watched 6 steps")) == (status, 1), ended.stderr


@pytest.mark.parametrize("place", ["before", "in it", "behind"])
def test_who_is_ended_before_the_script_began_is_told_so(tmp_path, place):
    body = f"""
        import os, signal
        from truestep.doctor.runtime.at_exit import WatchReportAtExit
        with WatchReportAtExit(lambda status: print("nothing began", status, flush=True)):
            here = {place!r}
            here == "before" and os.kill(os.getpid(), signal.SIGTERM)
            with WatchReportAtExit(lambda status: print("report", status, flush=True)):
                here == "in it" and os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
    """
    ended = warm.run("-c", textwrap.dedent(body), cwd=tmp_path)
    said = {"before": "nothing began 143\n", "in it": "report 143\n", "behind": ""}[place]
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, said)


def test_streams_that_the_script_closes_or_exchanges_do_not_lose_the_report(doctor):
    body = "import io\ntrain(clear=False)\nprint('first')\nsys.stdout = io.StringIO()\nsys.stderr.close()\nprint = None\n"
    ended = doctor(body)
    assert (ended.returncode, ended.stdout) == (1, "first\n")
    assert "GRAD001" in ended.stderr


# ── threads, forks, children ──────────────────────────────────────────────────────────────────────


def test_training_in_a_thread_is_watched_and_waited_for(doctor):
    ended = doctor("threading.Thread(target=train, kwargs={'clear': False}).start()\n", options=["--json"])
    assert ended.returncode == 1
    assert found(reported(ended.stdout)) == [("GRAD001", FAULT)]


def test_a_forked_child_is_not_watched_and_reports_nothing(doctor):
    body = """
train(2)
pid = os.fork()
if pid == 0:
    train(70, clear=len(sys.argv) > 9)  # far beyond the window: it must not wake up
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
train(2)
"""
    ended = doctor(body, options=["--steps", "100"])
    assert (ended.returncode, ended.stdout) == (0, "3\n"), ended.stderr
    assert ended.stderr.count("watched ") == 1


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_processes_that_the_script_starts_are_watched_each_by_itself(doctor, method):
    body = f"""
def work(number):
    train(clear=number != 1)
    print("done", number, flush=True)
    if number == 2:
        os._exit(0)

if __name__ == "__main__":
    import torch.multiprocessing as mp
    mp.set_forkserver_preload(["torch", "truestep.doctor.runtime.child_process_watch"])  # once, not in each child
    children = [mp.get_context({method!r}).Process(target=work, args=(i,)) for i in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    sys.exit(sum(child.exitcode for child in children))
"""
    ended = doctor(body, options=["--json"])
    assert ended.returncode == 1, ended.stderr
    document = reported(ended.stdout)
    assert found(document) == [("GRAD001", FAULT)]
    assert sorted(processes(document).values()) == [6, 6, 6]
    assert len(document["findings"][0]["evidence"]["processes"]) == 1
    assert document["script"]["status"] == 0


def test_a_child_that_is_killed_is_named_and_its_status_is_the_script_s_to_judge(doctor):
    body = """
def work():
    train()
    os.kill(os.getpid(), signal.SIGKILL)

import torch.multiprocessing as mp
child = mp.get_context("fork").Process(target=work)
child.start(); child.join()
print(child.exitcode)
"""
    ended = doctor(body)
    assert (ended.returncode, ended.stdout) == (0, "-9\n")
    assert "without a word: ForkProcess-1" in ended.stderr


@pytest.mark.slow
def test_torch_s_own_spawn_is_watched(doctor):
    body = """
def work(number):
    train(clear=number != 1)

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=2)
"""
    ended = doctor(body, options=["--json"], timeout=250)
    assert ended.returncode == 1, ended.stderr
    assert found(reported(ended.stdout)) == [("GRAD001", FAULT)]


def test_workers_of_a_loader_load_and_are_not_watched(doctor):
    body = """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8, shuffle=True, num_workers=2):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
"""
    ended = doctor(body, options=["--json"])
    assert ended.returncode == 0, ended.stderr
    assert reported(ended.stdout)["processes"] == []


# ── several ranks, started as torchrun starts them ────────────────────────────────────────────────

RANKS = """
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    if rank != {faulty}:
        opt.zero_grad()
    F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    opt.step()
dist.destroy_process_group()
if rank == {dying}:
    sys.exit(7)
"""


def ranks(folder, *, faulty=9, dying=9):
    (folder / "train.py").write_text(HEAD + RANKS.format(faulty=faulty, dying=dying), "utf-8")
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    started = [
        warm.Process(
            *DOCTOR, "--json", "train.py", cwd=folder, env=environment(**shared, RANK=rank, LOCAL_RANK=rank)
        )
        for rank in range(2)
    ]
    for process in started:
        process.wait()
    return started


def test_the_first_rank_reports_for_all_and_names_the_rank(tmp_path):
    first, second = ranks(tmp_path, faulty=1)
    assert (first.returncode, second.returncode) == (1, 0), first.error + second.error
    document = reported(first.output)
    assert [each["code"] for each in document["findings"]] == ["GRAD001"]
    assert document["findings"][0]["evidence"]["processes"] == ["rank 1"]
    assert processes(document) == {"rank 1": 6}
    assert "{" not in second.output


def test_clean_ranks_end_with_0_and_a_rank_s_own_status_stays(tmp_path):
    first, second = ranks(tmp_path, dying=1)
    assert (first.returncode, second.returncode) == (0, 7), first.error + second.error
    assert found(reported(first.output)) == []


# ── what a script may look like ───────────────────────────────────────────────────────────────────


def test_a_script_beside_a_torch_of_its_own_runs_with_that_one_unwatched(tmp_path):
    (tmp_path / "torch.py").write_text("version = 'mine'\n", "utf-8")
    (tmp_path / "train.py").write_text("import torch\nprint(torch.version)\nraise SystemExit(6)\n", "utf-8")
    ended = warm.run(*DOCTOR, "train.py", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (6, "mine\n")
    assert "torch.pyhidesPyTorchfromthisscript" in "".join(ended.stderr.split())  # however long the path is


def test_a_script_that_goes_elsewhere_is_named_and_read_where_it_lies(doctor, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    body = f"""
import multiprocessing.util, pathlib
multiprocessing.util.Finalize(None, lambda: print(pathlib.Path.cwd().name), exitpriority=1)  # at its end
os.chdir({str(elsewhere)!r})
print(pathlib.Path(__file__).is_file(), sys.argv[0])
train(clear=False)
"""
    ended = doctor(body, options=["--json", "--report", "report.json"])
    assert ended.stdout == "True train.py\nelsewhere\n"
    document = json.loads((tmp_path / "report.json").read_text())
    assert [(each["code"], each["path"], each["seen"]) for each in document["findings"]] == [
        ("GRAD001", "train.py", "read and ran")
    ]


def test_a_name_torch_of_the_script_s_own_disturbs_nothing(doctor):
    assert doctor("train()\ntorch = None\nF = nn = 3\n").returncode == 0


def test_twenty_thousand_lines_run(doctor):
    body = "".join(f"def f{number}(x):\n    return x.view(-1, {number})\n" for number in range(10_000))
    assert doctor(body + "train()\n").returncode == 0


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"# -*- coding: latin-1 -*-\nname = '\xe9'\nprint(len(name))\n", 0),
        (b"import torch\nname = '\xff\xfe'\n", 1),
        (b"def broken(:\n", 1),
    ],
    ids=["latin", "broken", "syntax"],
)
def test_text_that_python_reads_or_refuses(tmp_path, raw, status):
    (tmp_path / "train.py").write_bytes(raw)
    ended = warm.run(*DOCTOR, "train.py", cwd=tmp_path)
    assert ended.returncode == status
    assert ("SyntaxError" in ended.stderr) == bool(status)


# ── bit for bit ───────────────────────────────────────────────────────────────────────────────────

IDENTICAL = """
from torch.utils.data import DataLoader, Dataset

draw = torch.Generator().manual_seed(5)
numbers = np.random.default_rng(5)


class Noisy(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.randn(4) + random.random() + np.random.rand(), index % 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x + torch.rand(x.shape, generator=draw) + numbers.random()))


seen = []
net = Net()
net.register_forward_hook(lambda *_: seen.append(1))
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
scaler = torch.amp.GradScaler("cpu", enabled=HALF)
for epoch in range(5):
    net.train()
    for x, y in DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=WORKERS):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=HALF):
            loss = F.cross_entropy(net(x.float()), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    schedule.step()
    net.eval()
    with torch.no_grad():
        net(torch.randn(8, 4))
torch.save(
    [net.state_dict(), opt.state_dict(), scaler.state_dict(), schedule.state_dict(), torch.get_rng_state(),
     draw.get_state(), repr(random.getstate()), repr(np.random.get_state()), repr(numbers.random()), len(seen)],
    sys.argv[1],
)
"""


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree, key=str) for leaf in leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for each in tree for leaf in leaves(each)]
    return [tree]


@pytest.mark.sliced(2)
@pytest.mark.parametrize(("half", "workers"), [(False, 0), (False, 2), (True, 0)])
def test_a_watched_run_ends_bit_for_bit_as_a_plain_one(tmp_path, half, workers):
    import torch

    text = HEAD + IDENTICAL.replace("HALF", str(half)).replace("WORKERS", str(workers))
    (tmp_path / "train.py").write_text(text, "utf-8")
    assert warm.run("train.py", "plain.pt", cwd=tmp_path).returncode == 0
    ended = warm.run(*DOCTOR, "--fail-on", "bug", "train.py", "watched.pt", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    plain, watched = (leaves(torch.load(tmp_path / each)) for each in ("plain.pt", "watched.pt"))
    assert len(plain) == len(watched)
    for one, other in zip(plain, watched, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


# ── the compiler ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sliced(2)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_is_watched_from_outside_and_the_report_says_so(doctor, backend):
    body = f"""
net = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3)), backend={backend!r})
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(6):
    F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    opt.step()
"""
    ended = doctor(body, options=["--json"])
    document = reported(ended.stdout)
    assert [each["code"] for each in document["findings"]] == ["GRAD001"]
    assert "compiled" in document["not_run"]["PARAM018"]
    assert len(document["unseen"]) == 1
    assert document["torch_warnings"] == []


# ── what a script leaves ──────────────────────────────────────────────────────────────────────────

RUN = """\
import sys
import torch
import torch.nn.functional as F
import truestep as ts

run = ts.Run("run", seed=0, saving=ts.Saving(every_steps=5))
net = run.learner(torch.nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.1))
data = run.data(torch.utils.data.TensorDataset(torch.randn(64, 4), torch.arange(64) % 3), batch_size=8)


def loss(batch):
    return F.cross_entropy(net(batch[0]), batch[1], reduction="none")


def train():
    for epoch in run.epochs(9):
        for batch in run.batches(data):
            net.update(loss, batch)
            (torch.save(run.step, "own.pt"), print(run.step))


if "with" in sys.argv:
    with run:
        train()
else:
    train()
"""


@pytest.mark.parametrize("how", ["with", "without"])
def test_a_run_that_is_tried_out_leaves_nothing_to_go_on_from(how, tmp_path):
    (tmp_path / "train.py").write_text(RUN, "utf-8")
    for _ in range(2):  # the second sees the first steps again
        ran = warm.run(*DOCTOR, "--steps", "3", "train.py", how, cwd=tmp_path)
        assert (ran.returncode, ran.stdout.split()) == (0, ["1", "2"]), ran.stderr
        assert "stopped: after 3 steps, as --steps says" in ran.stderr
        assert [each.name for each in (tmp_path / "run" / "checkpoints").iterdir()] == [".lock"]
        assert (tmp_path / "own.pt").is_file()


def test_what_a_run_saved_before_it_was_stopped_stays(tmp_path):
    (tmp_path / "train.py").write_text(RUN, "utf-8")
    ran = warm.run(*DOCTOR, "--steps", "8", "train.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [each.name[-6:] for each in (tmp_path / "run" / "checkpoints").iterdir() if each.is_dir()] == [
        "step-5"
    ]
