# SPDX-License-Identifier: Apache-2.0
"""What a repository's own torch still does is advice there, and a bug wherever a torch that is new may run it."""

from pathlib import Path

import pytest

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths

BUG, ADVICE = Severity.BUG, Severity.ADVICE
OLD = """
import torch
from torch.autograd import Variable
import torch.nn.functional as F
def train(net, opt, loader):
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.data[0])
"""
STFT = OLD.replace("print(loss.data[0])", "torch.stft(x, 512).abs()")
CASES = [
    ("requirements.txt", "torch==0.3.1\n", OLD, ADVICE),
    ("requirements.txt", "numpy\ntorch >= 0.3, < 0.4\n", OLD, ADVICE),
    ("requirements.txt", "torch<0.4\n", OLD, ADVICE),
    ("requirements-dev.txt", "torch~=0.3.0\n", OLD, ADVICE),
    ("environment.yml", "dependencies:\n  - pytorch=0.3.1=py36_0\n", OLD, ADVICE),
    ("setup.py", "setup(install_requires=['torch==0.2'])\n", OLD, ADVICE),
    ("README.md", "* Python 3.6\n* Pytorch 0.1.12_2\n", OLD, ADVICE),
    ("README.rst", "You need **PyTorch** v0.2 to run it.\n", OLD, ADVICE),
    ("README.md", "![](badge/pytorch-0.3.0-blue.svg)\n", OLD, ADVICE),
    ("requirements.txt", "torch==1.4.0\n", STFT, ADVICE),
    ("requirements.txt", "torch==1.4.0\n", OLD, BUG),
    ("requirements.txt", "torch>=0.3\n", OLD, BUG),
    ("requirements.txt", "torch\n", OLD, BUG),
    ("requirements.txt", "torch==2.1.0\n", STFT, BUG),
    ("requirements.txt", "torchtext==0.2.0\ntorchvision==0.1.8\n", OLD, BUG),
    ("requirements.txt", "torch!=0.3.1\n", OLD, BUG),
    ("README.md", "PyTorch 0.3+ is needed.\n", OLD, BUG),
    ("README.md", "PyTorch 0.3 or later.\n", OLD, BUG),
    ("README.md", "pytorch 0.3 及以上\n", OLD, BUG),
    ("README.md", "Works with PyTorch 0.3 and PyTorch 1.0.\n", OLD, BUG),
    ("README.md", "A tutorial.\n", OLD, BUG),
    ("notes.txt", "torch==0.3.1\n", OLD, BUG),
]


@pytest.mark.parametrize(("name", "text", "code", "severity"), CASES)
def test_torch_that_a_repository_asks_for(
    tmp_path: Path, name: str, text: str, code: str, severity: Severity
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "src").mkdir()
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "src" / "train.py").write_text(code)
    found = [each for each in read_paths([tmp_path / "src"]).findings if each.code in ("OLD008", "OLD010")]
    assert [each.severity for each in found] == [severity]
    assert (name in found[0].message) == (severity is ADVICE)


def test_above_no_repository_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==0.3.1\n")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "train.py").write_text(OLD)
    found = [each for each in read_paths([tmp_path / "one"]).findings if each.code == "OLD008"]
    assert [each.severity for each in found] == [BUG]


def test_a_pin_that_changes_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(OLD)
    severities = []
    for text in ("torch==0.3.1", "torch==1.0", "torch"):
        (tmp_path / "requirements.txt").write_text(text)
        found = read_paths([tmp_path / "src"], cache=tmp_path / "kept").findings
        severities += [each.severity for each in found if each.code == "OLD008"]
    assert severities == [ADVICE, BUG, BUG]
