# SPDX-License-Identifier: Apache-2.0
"""A command that is given another thing than it takes says what that is, and what takes it."""

import os

import pytest
import torch
from typer.testing import CliRunner

from truestep.checkpoints import CheckpointStore
from truestep.cli.checkpoints import app as checkpoints
from truestep.cli.doctor import app as doctor
from truestep.cli.explain import app as explain
from truestep.cli.read import app as read
from truestep.cli.report import app as report
from truestep.cli.runs import app as runs
from truestep.core.errors import TruestepError

APPS = {
    "checkpoints": checkpoints,
    "doctor": doctor,
    "explain": explain,
    "read": read,
    "report": report,
    "runs": runs,
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (8, 16):
        (folder := tmp_path / "hf" / f"checkpoint-{number}").mkdir(parents=True)
        for name in ("trainer_state.json", "config.json", "model.safetensors", "optimizer.pt"):
            (folder / name).touch()
        os.utime(folder, (number, number))
    for name in ("lightning_logs/version_0/checkpoints/epoch=0.ckpt", "states/1/random_states_0.pkl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "states/1/model.safetensors").touch()
    (tmp_path / "plain").mkdir()
    (tmp_path / "empty").mkdir()
    torch.save({"weight": torch.ones(2)}, "plain/final.pt")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("import torch\n")
    with CheckpointStore(tmp_path / "all/exact/checkpoints") as store:  # as ExactResume keeps
        store.save(8, {"name": "accelerate", "files": {}, "place": {}})


TRAINER = "It holds 2 checkpoints of transformers' Trainer, which trainer.train(resume_from_checkpoint='hf/checkpoint-16') takes."
LIGHTNING = "It holds a checkpoint of Lightning, which trainer.fit(model, loader, ckpt_path='lightning_logs/version_0/checkp"
ACCELERATE = "It holds a checkpoint of Accelerate, which accelerator.load_state('states/1') takes."
WEIGHTS = "It holds a file of weights, which ts.load_weights(model, 'plain/final.pt') takes."
FILE = "It is a file of weights, which ts.load_weights(model, 'plain/final.pt') takes."
OURS = "Checkpoints of Truestep lie in all/exact: `truestep checkpoints list all/exact` lists them."
NAME_IT = "Name the script, or notebook, that trains: truestep doctor train.py"
SAYS = {
    "checkpoints list hf": (1, TRAINER),
    "checkpoints hf": (1, TRAINER),
    "checkpoints verify hf": (1, TRAINER),
    "checkpoints show hf": (2, TRAINER),
    "checkpoints list lightning_logs": (1, LIGHTNING),
    "checkpoints list states": (1, ACCELERATE),
    "checkpoints list plain": (1, WEIGHTS),
    "checkpoints list plain/final.pt": (2, FILE),
    "checkpoints list code/train.py": (2, "Write the folder of a run: runs/digits"),
    "checkpoints list all": (1, OURS),
    "checkpoints list all/exact": (0, "000001-step-8"),
    "checkpoints prune hf": (0, "nothing was removed from hf: 0 checkpoints there."),
    "runs all": (0, OURS),
    "runs all/exact": (0, OURS),
    "runs hf": (0, TRAINER),
    "runs empty": (0, "A script with ts.Run(...) makes one."),
    "report all/exact": (2, OURS),
    "report hf": (2, TRAINER),
    "doctor plain/final.pt": (2, f"plain/final.pt is no script, so nothing was run. {FILE} {NAME_IT}"),
    "doctor hf": (2, f"It is a folder without a script. {TRAINER} {NAME_IT}"),
    "doctor all/exact": (2, f"It is a folder without a script. {OURS} {NAME_IT}"),
    "doctor empty": (2, f"It is a folder without a script. {NAME_IT}"),
    "doctor code": (
        2,
        "holds 'code/train.py'. Name the one that trains. `truestep read code` reads all of them.",
    ),
    "doctor -m code/train.py": (2, "and code/train.py is a file. Write: truestep doctor code/train.py"),
    "doctor nothing.py": (2, NAME_IT),
    "read empty": (2, "Name a script, or a folder of them: truestep read train.py"),
    "read hf": (2, TRAINER),
    "read nothing.py": (2, "Name one that is there, or none for this folder: truestep read"),
    "explain code/train.py": (
        2,
        "truestep read code/train.py; to run and watch it: truestep doctor code/train.py",
    ),
    "explain plain/final.pt": (2, "is no text, so there is no error to explain in it"),
}


@pytest.mark.parametrize("command", SAYS)
def test_what_was_given_is_named_with_what_takes_it(command):
    name, *words = command.split()
    ran = CliRunner().invoke(APPS[name], words, env={"COLUMNS": "1000"})
    is_told = isinstance(ran.exception, TruestepError)  # the command line prints it, and ends with 2
    said = str(ran.exception) if is_told else " ".join(ran.output.split())
    status, wanted = SAYS[command]
    assert wanted in said
    assert (2 if is_told else ran.exit_code) == status
