# SPDX-License-Identifier: Apache-2.0
"""`truestep env` as a user runs it: with torch, without, with a broken one, piped, as another user."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import warm

from truestep.core.errors import MissingPackageError
from truestep.machine.environment import torch_build


def env(*arguments, **settings):
    """Run it in an interpreter that is started for it: what is installed, and whether it loads, is found without importing it."""
    command = [sys.executable, "-m", "truestep", "env", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **settings)


def test_json_is_one_document_and_the_status_is_that_of_the_verdicts():
    result = env("--json")
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    failed = [verdict for verdict in document["verdicts"] if verdict["status"] == "fail"]
    assert result.returncode == (1 if failed else 0)
    assert {"torch", "gpus", "toolkit", "python", "packages", "container"} < set(document["machine"])
    assert result.stderr == ""


def test_the_screen_has_every_section_and_no_control_codes_when_piped():
    result = env()
    for section in ("torch", "CUDA toolkit", "Python", "packages", "machine", "verdicts"):
        assert f"\n{section}\n" in f"\n{result.stdout}"
    assert result.stdout.startswith("verdicts\n")
    assert "\x1b" not in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_a_torch_whose_import_fails_is_named_and_ends_with_1(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open')")
    (tmp_path / "torch/version.py").write_text("__version__ = '2.13.0'\ncuda = '13.0'\n")
    inherited = os.environ.get("PYTHONPATH", "")
    result = env(env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{inherited}"})
    assert result.returncode == 1
    shown = " ".join(result.stdout.split())  # a line is broken where the folder's name makes it too long
    assert "does not load: ImportError: libcudart.so.13: cannot open" in shown


def test_a_torch_py_in_the_working_folder_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("")
    source = os.pathsep.join(
        str(Path(place).resolve()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place
    )
    code = "from truestep.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, "env"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert result.returncode == 1
    assert "import its torch.py" in result.stdout


def test_secrets_are_not_in_any_format():
    secret = {**os.environ, "HF_TOKEN": "hf_verysecretvalue", "NCCL_DEBUG": "INFO"}
    for arguments in ((), ("--json",), ("--collect-env",)):
        result = warm.run("-m", "truestep", "env", *arguments, env=secret)
        assert result.stdout
        assert "verysecret" not in result.stdout + result.stderr


def test_the_other_format_is_torchs_word_for_word():
    pytest.importorskip("torch")
    if shutil.which("lscpu") is None:
        pytest.skip("torch's tool needs lscpu")
    theirs, ours = (
        warm.run("-m", *words)
        for words in (("torch.utils.collect_env",), ("truestep", "env", "--collect-env"))
    )
    assert theirs.stdout == f"Collecting environment information...\n{ours.stdout}"


def test_the_other_format_where_torch_does_not_load_and_where_it_is_missing(tmp_path, monkeypatch):
    (tmp_path / "torch/utils").mkdir(parents=True)
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open')")
    report = "try:\n    import torch\nexcept ImportError as error:\n    print(f'begins\\nPyTorch version: N/A, {error}')\n"
    (tmp_path / "torch/utils/collect_env.py").write_text(report)
    inherited = os.environ.get("PYTHONPATH", "")
    result = env("--collect-env", env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{inherited}"})
    assert (result.returncode, result.stdout) == (0, "PyTorch version: N/A, libcudart.so.13: cannot open\n")
    monkeypatch.setattr(torch_build, "find_torch_folder", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"truestep\[torch\]"):
        torch_build.run_torch_collect_env()


def test_two_formats_at_once_are_a_usage_error():
    assert env("--json", "--collect-env").returncode == 2


def test_torch_is_not_imported_to_start():
    code = (
        "import sys; from truestep.machine.environment import environment; environment(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_terminal_that_knows_no_unicode_gets_marks_of_ascii():
    result = env(
        env={**os.environ, "PYTHONIOENCODING": "ascii", "TMPDIR": "/tmp"}
    )  # whose name is of its letters
    assert result.returncode in (0, 1)
    verdicts = result.stdout.partition("verdicts\n")[2]
    assert "?" not in verdicts
    assert re.search(r"^  \+ ", verdicts, re.MULTILINE)


def test_a_hostile_surrounding_is_no_obstacle(tmp_path):
    """No home, no PATH, a working folder that is gone, no variable at all."""
    code = """
import os, sys
os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])
from truestep.cli.main import main
sys.argv = ["truestep", "env", "--json"]
main()
"""
    gone = tmp_path / "gone"
    gone.mkdir()
    source = [
        str(Path(place).resolve()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place
    ]
    result = subprocess.run(
        [sys.executable, "-c", code, str(gone)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(source)},
        timeout=60,
    )
    assert result.returncode in (0, 1), result.stderr
    assert json.loads(result.stdout)["machine"]["system"]["name"]
