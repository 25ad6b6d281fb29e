# SPDX-License-Identifier: Apache-2.0
"""Hooks, workflows and the pages at the front door: they parse, and what they call exists and runs."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from truestep.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/doctor-output.md").read_text("utf-8"), re.DOTALL)
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


TESTS = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]


def test_the_workflow_runs_what_is_there_on_every_python_that_is_promised():
    assert set(TESTS) == {"tests", "elsewhere", "wheel", "docs"}
    lines = [
        line for job in TESTS.values() for step in job["steps"] for line in step.get("run", "").splitlines()
    ]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = [line.removeprefix("make ") for line in lines if line.startswith("make ")]
    assert targets
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
    assert ".ci/run" in lines
    assert "\nmake test\n" in (ROOT / ".ci/run").read_text("utf-8")
    assert "\n$ make test\n" in (ROOT / "README.md").read_text("utf-8")
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert TESTS["tests"]["strategy"]["matrix"]["python"] == promised


def test_the_citation_names_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert f"## {project['version']} " in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "CONTRIBUTING.md", "docs/install.md"])
def test_a_page_of_the_front_door_names_commands_that_exist(page):
    text = (ROOT / page).read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    made = re.findall(r"(?:`|\$ )make ([a-z-]+)", text)
    assert [each for each in made if f"\n{each}:" not in makefile] == []
    used = set(re.findall(r"(?:`|\$ |truestep )truestep ([a-z]+)", text))
    assert used <= COMMANDS.keys()
    assert not re.search(
        r"OWNER|your-name|example\.(com|org)|pip install '?truestep", text
    )  # it is on no index


@pytest.mark.parametrize("torch", ["existing", "new"])
def test_the_demo_says_what_it_fetches_and_takes_a_torch_that_is_there(torch, tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    command = ["make", "--dry-run", "demo", f"TORCH={torch}"]
    steps = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "Downloading" in steps
    assert ("existing.pth" in steps) == (torch == "existing")
    assert ("install -c constraints.txt torch" in steps) == (torch == "new")
