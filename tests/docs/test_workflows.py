# SPDX-License-Identifier: Apache-2.0
"""The settings for hooks and workflows that the docs show: they parse, and what they call exists and runs."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from truestep.cli.main import app

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/doctor.md").read_text("utf-8"), re.DOTALL)
HOOK, WORKFLOW = map(yaml.safe_load, BLOCKS)


def commands():
    yield HOOK["repos"][0]["hooks"][0]["entry"]
    for step in WORKFLOW["jobs"]["read"]["steps"]:
        if step.get("run", "").startswith("truestep"):
            yield step["run"]


@pytest.mark.parametrize("command", list(commands()))
def test_the_command_runs(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    words = shlex.split(command.partition(">")[0])
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.output


def test_the_hook_of_a_clone_is_the_one_that_the_page_names():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    shown = HOOK["repos"][0]["hooks"][0]
    assert {key: hook[key] for key in ("id", "entry", "types_or", "require_serial")} == {
        key: shown[key] for key in ("id", "entry", "types_or", "require_serial")
    }
