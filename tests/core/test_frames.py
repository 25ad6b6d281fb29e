# SPDX-License-Identifier: Apache-2.0
"""Warnings point at the user's own line, however many calls of the package lie between."""

import ast
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.core import user_frames

PACKAGE = Path(ts.__file__).parent


def test_a_warning_out_of_the_depth_of_an_update_points_at_the_line_that_made_it(tmp_path):
    run = ts.Run(tmp_path / "run", quiet=True, device="cpu")
    net = run.learner(
        nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), lambda p: torch.optim.SGD(p, lr=0.1), micro_batch=2
    )
    with pytest.warns(UserWarning, match="Batch normalisation") as caught:
        net.update(lambda rows: net(rows).sum(1), torch.ones(4, 3))
    run.close()
    assert caught[0].filename == __file__
    assert "net.update" in Path(__file__).read_text("utf-8").splitlines()[caught[0].lineno - 1]


def test_without_a_line_of_the_user_s_it_points_out_of_the_package(monkeypatch):
    monkeypatch.setattr(user_frames, "is_library_file", lambda _: True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        user_frames.warn_user("something")
    assert caught[0].filename == __file__


def test_whose_a_file_is(monkeypatch):
    monkeypatch.setattr(user_frames, "_PACKAGE", "/home/somebody/truestep/")
    assert not user_frames.is_library_file("/home/somebody/truestep-demo/train.py")
    assert user_frames.is_library_file("/home/somebody/truestep/engine/update.py")
    assert user_frames.is_library_file(torch.__file__)
    assert user_frames.is_library_file("/usr/lib/python3/dist-packages/torch/nn/__init__.py")
    assert user_frames.is_library_file("<eval_with_key>.1")  # what torch.fx wrote


def test_every_warning_of_the_package_is_given_so():
    """A number of frames that is counted by hand is wrong as soon as a call lies between."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "core" / "user_frames.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "stacklevel"
    ]
    assert found == []
