# SPDX-License-Identifier: Apache-2.0
"""A command that starts scripts, given to the doctor in place of a script, is refused with the command to write."""

import pytest

import truestep as ts
from truestep.doctor.runtime.launch_commands import refuse_launcher
from truestep.doctor.runtime.script import WatchedScript

ITSELF = "truestep doctor train.py --lr 1"
COMMANDS = {
    "python train.py --lr 1": [ITSELF],
    "python -u train.py --lr 1": [ITSELF],
    "python -m package.train": ["truestep doctor -m package.train"],
    "torchrun --nproc-per-node 2 train.py --lr 1": [
        ITSELF,
        "torchrun --nproc-per-node 2 -m truestep doctor train.py --lr 1",
    ],
    "accelerate launch train.py --lr 1": [ITSELF, "accelerate launch -m truestep doctor train.py --lr 1"],
    "deepspeed --num_gpus 2 train.py --lr 1": [
        ITSELF,
        "deepspeed --num_gpus 2 -m truestep doctor train.py --lr 1",
    ],
    "uv run train.py --lr 1": [ITSELF],
    "-m accelerate launch train.py": ["accelerate launch -m truestep doctor train.py"],
    "-m accelerate.commands.launch --cpu train.py": ["launch --cpu -m truestep doctor train.py"],
    "-m torch.distributed.run": ["truestep doctor train.py"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_launcher_is_refused_with_the_command_to_write(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)  # an environment of its own, called by its path
    name, *arguments = command.removeprefix("-m ").split()
    with pytest.raises(ts.OptionError) as raised:
        refuse_launcher(WatchedScript(name, command.startswith("-m "), tuple(arguments)))
    said = str(raised.value)
    assert [line for line in COMMANDS[command] if line not in said] == []
    assert "python -m truestep" not in said


def test_any_command_that_is_installed_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    with pytest.raises(ts.OptionError, match=r"truestep doctor train\.py"):
        refuse_launcher(WatchedScript("starter", False, ("train.py",)))


@pytest.mark.parametrize(
    ("name", "is_module"), [("train.py", False), ("python", False), ("package.train", True)]
)
def test_a_script_a_module_and_a_file_of_such_a_name_are_none(name, is_module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    refuse_launcher(WatchedScript(name, is_module, ()))


def test_an_installed_module_is_not_read(tmp_path, monkeypatch):
    """Reading followed its imports through all that is installed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    assert [each.name for each in WatchedScript("mine", True, ()).sources()] == ["mine.py"]
    assert WatchedScript("torch.utils.collect_env", True, ()).sources() == []
    assert WatchedScript("timeit", True, ()).sources() == []
