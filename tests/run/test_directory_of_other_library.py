# SPDX-License-Identifier: Apache-2.0
"""A folder of another library is no run's, though it has a config.json, too."""

import json

import pytest

import truestep as ts

CONFIGS = {
    "transformers": {"model_type": "gpt2", "transformers_version": "5.1.0", "n_layer": 2, "attn_pdrop": 0.1},
    "an old one": {"model_type": "bert", "architectures": ["BertModel"]},
    "diffusers": {"_class_name": "UNet2DModel", "_diffusers_version": "0.35.0", "layers_per_block": 2},
    "timm": {"architecture": "resnet18", "num_classes": 10},
    "somebody's own": {"lr": 0.1, "epochs": 3},
}


@pytest.mark.parametrize("resume", ["auto", "edited", "must", "never"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_it_is_named_and_nothing_is_written(tmp_path, kind, resume):
    folder = tmp_path / "checkpoint-60"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind]))
    with pytest.raises(ts.RunDirectoryError) as caught:
        ts.Run(folder, device="cpu", progress=False, resume=resume)
    said = str(caught.value)
    assert f"{folder} holds no run of Truestep: its config.json is" in said
    assert "ts.Run('runs/checkpoint-60')" in said
    assert "there, not set now" not in said
    assert [each.name for each in folder.iterdir() if each.is_file()] == ["config.json"]


def test_another_run_is_told_by_what_differs(tmp_path):
    with ts.Run(tmp_path, device="cpu", progress=False, quiet=True, seed=0, doctor=False) as run:
        assert list(run.steps(2)) == [0, 1]
    with pytest.raises(ts.RunDirectoryError, match="holds another run:\n  seed: 0 there, 1 now"):
        ts.Run(tmp_path, device="cpu", progress=False, quiet=True, seed=1, doctor=False)
