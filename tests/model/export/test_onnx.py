# SPDX-License-Identifier: Apache-2.0
"""ONNX files give what torch gives at two batch sizes; a provider that is not got is an error; the model stays as it was."""

import copy
import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import truestep as ts
from truestep.core.errors import MissingPackageError
from truestep.model.export.onnx import _compare_outputs

pytestmark = pytest.mark.imports_framework


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 36, 5)
    )


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"truestep\[onnx\]"):
        ts.export_onnx(network(), torch.zeros(1, 3, 8, 8), tmp_path / "a.onnx")


@pytest.fixture
def onnxruntime():
    pytest.importorskip("onnx", reason="the extra [onnx] is not installed")
    pytest.importorskip("onnxscript", reason="the extra [onnx] is not installed")
    return pytest.importorskip("onnxruntime", reason="the extra [onnx] is not installed")


@pytest.mark.parametrize("rows", [1, 4])
def test_the_file_gives_what_torch_gives_and_the_model_is_as_before(onnxruntime, rows, tmp_path):
    model = network().train()
    model(torch.randn(8, 3, 8, 8))
    before, stream = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = ts.export_onnx(
        model, torch.randn(rows, 3, 8, 8, generator=torch.Generator()), tmp_path / "a.onnx"
    )
    assert torch.equal(torch.get_rng_state(), stream)
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert [each.batch_size for each in found.comparisons] == [rows, 2 * rows]
    assert found.agrees
    assert found.providers_got == ("CPUExecutionProvider",)
    json.dumps(found.to_dict())
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    images = torch.randn(7, 3, 8, 8)
    got = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: images.numpy()})[0])
    torch.testing.assert_close(got, model.eval()(images).detach(), atol=1e-5, rtol=1e-4)


class TwoWays(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, scale):
        return {"scaled": self.linear(x) * scale, "sum": x.sum(1)}


@pytest.mark.parametrize(
    "batch", [(torch.ones(2, 3), torch.ones(2, 1)), {"x": torch.ones(2, 3), "scale": torch.ones(2, 1)}]
)
def test_several_arguments_by_place_and_by_name(onnxruntime, batch, tmp_path):
    assert ts.export_onnx(TwoWays(), batch, tmp_path / "a.onnx").agrees


def test_a_provider_that_is_not_there_is_an_error_with_its_remedy(onnxruntime, tmp_path):
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(ts.OptionError, match=r"has no CUDAExecutionProvider.*Install onnxruntime-gpu"):
        ts.export_onnx(
            network(), torch.zeros(2, 3, 8, 8), tmp_path / "a.onnx", providers=["CUDAExecutionProvider"]
        )
    assert not any(tmp_path.iterdir())  # it is told before the work


def test_a_provider_that_does_not_start_is_an_error(onnxruntime, monkeypatch, tmp_path):
    """A CUDA build on a machine without CUDA: the name is there, and the session falls back to the CPU."""
    there = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: there)
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda path, *_, **__: real(path))
    with pytest.raises(ts.OptionError, match="asked for CUDAExecutionProvider and got CPUExecutionProvider"):
        ts.export_onnx(nn.Linear(3, 2), torch.zeros(2, 3), tmp_path / "a.onnx", providers=there[:1])


def test_threads_reach_the_session(onnxruntime, tmp_path):
    from truestep.model.export.onnx import open_onnx_session

    ts.export_onnx(nn.Linear(3, 2), torch.zeros(2, 3), tmp_path / "a.onnx")
    session = open_onnx_session(tmp_path / "a.onnx", None, 1)
    assert session.get_session_options().intra_op_num_threads == 1


class Decides(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else x + 1


def test_what_can_t_be_exported_says_why(onnxruntime, tmp_path, capfd):
    with pytest.raises(ts.ModelError, match=r"Decides can't be exported.*data-dependent.*torch.where"):
        ts.export_onnx(Decides(), torch.ones(2, 3), tmp_path / "a.onnx")
    assert capfd.readouterr() == ("", "")


def test_a_failing_forward_names_the_module(onnxruntime, tmp_path):
    with pytest.raises(ts.ModelError, match=r"failed in 5 \(Linear\)"):
        ts.export_onnx(network(), torch.zeros(1, 3, 9, 9), tmp_path / "a.onnx")


def test_a_path_that_can_t_be_written(onnxruntime, tmp_path):
    for path in (tmp_path / "a.pt", tmp_path / "missing" / "a.onnx"):
        with pytest.raises(ts.OptionError, match="can't be written"):
            ts.export_onnx(network(), torch.zeros(1, 3, 8, 8), path)


def test_a_nan_in_any_output_of_the_file_does_not_agree():
    class Two(nn.Module):
        def forward(self, features):
            return features, features + 1

    class Session:
        def get_inputs(self):
            return [SimpleNamespace(name="features")]

        def run(self, _, feed):
            return [feed["features"], np.full_like(feed["features"], np.nan)]

    found = _compare_outputs(Two(), ((torch.ones(2, 3),), {}), Session())
    assert math.isnan(found.largest_difference)
    assert found.largest_output == 2.0
