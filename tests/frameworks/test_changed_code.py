# SPDX-License-Identifier: Apache-2.0
"""What the code changes between a kill and the next start is told of, or refused; what changes nothing is not."""

import json
from pathlib import Path

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

KIND = "holds a checkpoint of another schedule: the schedule was "
# name: (options before the kill, options behind it, what is said, whether the end is that of a run that was never stopped)
LIGHTNING = {
    "nothing": ({}, {}, "", True),
    "a clip": ({}, {"gradient_clip_val": 0.001}, "gradient_clip_val was None, and is 0.001. From step 12 on", False),
    "no clip": ({"gradient_clip_val": 0}, {}, "", True),
    "another clip": (
        {"gradient_clip_val": 0.1}, {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
        "gradient_clip_algorithm was None, and is value. From step 12 on", False,
    ),
    "precision": ({}, {"precision": "bf16-mixed"}, "precision was 32-true, and is bf16-mixed. From step 12 on", False),
    "precision in other words": ({"precision": 32}, {"precision": "32-true"}, "", True),
    "validation": ({}, {"val_check_interval": 4}, "val_check_interval was 1.0, and is 4. From step 12 on", True),
    "validation in other words": ({"val_check_interval": 1.0}, {}, "", True),
    "fewer batches": ({}, {"limit_train_batches": 4}, "limit_train_batches was 1.0, and is 4. From step 12", False),
    "accumulation": ({}, {"accumulate_grad_batches": 2}, "batches to a step was 1, and is 2", None),
    "a schedule": ({}, {"schedule": "step"}, f"{KIND}none, and is StepLR", None),
    "no schedule": ({"schedule": "step"}, {}, f"{KIND}StepLR, and is none", None),
    "its number": ({"schedule": "step"}, {"schedule": "step 8"}, "step_size of StepLR is 8 in the code, and was 4", True),
    "its length": ({"schedule": "cycle 48"}, {"schedule": "cycle 96"}, "total_steps of OneCycleLR is 96 in the", True),
    "its function": ({"schedule": "warm 30"}, {"schedule": "warm 9"}, "factor at step 12 was 0.433, and is 1. From", False),
    "the same function": ({"schedule": "warm 30"}, {"schedule": "warm 30"}, "", True),
    "a warm-up that is over": ({"schedule": "warm 4"}, {"schedule": "warm 9"}, "", True),
    "a part that is over": ({"schedule": "warm 4, then step"}, {"schedule": "warm 9, then step"}, "", True),
    "more epochs": ({}, {"max_epochs": 4}, "", False),
    "fewer epochs": ({}, {"max_epochs": 1}, "max_epochs=1 asks for no more than is done, so nothing would", None),
    "fewer epochs, but more than are done": ({}, {"max_epochs": 2}, "", False),
    "fewer steps": ({}, {"max_steps": 12}, "max_steps=12 asks for no more than is done, so nothing would be", None),
    "fewer steps, but more than are done": ({}, {"max_steps": 20}, "", False),
    "steps for steps": ({"max_steps": 24}, {"max_steps": 24}, "", True),
    "a seed": ({}, {"seed": 2}, "the seed is 2 in the code, and was 1 when this training began", True),
    "a seed that data come from": ({"drawn": True}, {"drawn": True, "seed": 2}, "The seed was 1, and is 2: put it", None),
}  # fmt: skip
TRANSFORMERS = {
    "nothing": ({}, {}, "", True),
    "a schedule": (
        {}, {"lr_scheduler_type": "cosine"}, "lr_scheduler_type was linear, and is cosine. From step 12 on", False,
    ),
    "a warm-up": ({}, {"warmup_steps": 20}, "warmup_steps was 0, and is 20. From step 12 on", False),
    "a warm-up in other words": ({"warmup_steps": 0.1}, {"warmup_steps": 3}, "", True),
    "a clip": ({}, {"max_grad_norm": 0.001}, "max_grad_norm was 1.0, and is 0.001. From step 12 on", False),
    "a clip in other words": ({"max_grad_norm": 1}, {}, "", True),
    "precision": ({}, {"bf16": True}, "bf16 was False, and is True. From step 12 on", False),
    "more epochs": ({}, {"num_train_epochs": 4}, "num_train_epochs was 3, and is 4. From step 12 on", False),
    "more epochs at one rate": (
        {"lr_scheduler_type": "constant"}, {"num_train_epochs": 4, "lr_scheduler_type": "constant"}, "", False,
    ),
    "steps for epochs": ({"max_steps": 24}, {}, "", True),
    "decay": ({}, {"weight_decay": 0.5}, "0.5 has no effect", True),
    "moments": ({}, {"adam_beta2": 0.5}, "adam_beta2 of adamw_torch_fused is 0.5 in the code, and was 0.999", True),
    "own rate": ({"own": True}, {"own": True, "rate": 0.5}, "lr of SGD is 0.5 in the code, and was 0.05", True),
    "own number": ({"schedule": "step"}, {"schedule": "step 8"}, "step_size of StepLR is 8 in the code", True),
    "own function": ({"schedule": "warm 4"}, {"schedule": "warm 30"}, "step 12 was 1, and is 0.433. From", False),
    "own schedule": ({"own": True}, {"schedule": "step"}, f"{KIND}LambdaLR, and is StepLR", None),
    "fewer epochs": ({}, {"num_train_epochs": 1}, "num_train_epochs=1 asks for no more than is done, so", None),
    "half epochs": ({}, {"num_train_epochs": 1.5}, "num_train_epochs=1.5 asks for no more than is done", None),
    "fewer steps": ({}, {"max_steps": 6}, "max_steps=6 asks for no more than is done, so nothing would be", None),
    "as many steps as are done": ({}, {"max_steps": 12}, "max_steps=12 asks for no more than is done, so", None),
    "a seed": ({}, {"seed": 1}, "the seed was 42, and is 1", None),
    "a seed of another order": ({"plain": True}, {"plain": True, "seed": 1}, "is 1 in the code, and was 42", True),
    "a seed that data come from": (
        {"plain": True, "drawn": True}, {"plain": True, "drawn": True, "seed": 1}, "The seed was 42, and is 1: put", None,
    ),
    "order": ({}, {"train_sampling_strategy": "sequential"}, "train_sampling_strategy was random, and is seq", None),
}  # fmt: skip
ACCELERATE = {
    "nothing": ({}, {}, "", True),
    "precision": ({}, {"mixed_precision": "bf16"}, "mixed_precision was no, and is bf16. From step 12 on", False),
    "precision in other words": ({"mixed_precision": "no"}, {}, "", True),
    "accumulation": ({}, {"gradient_accumulation_steps": 2}, "batches to a step was 1, and is 2", None),
    "a schedule": ({}, {"schedule": "step"}, f"{KIND}none, and is StepLR", None),
    "a registered schedule": ({}, {"schedule": "step", "registered": True}, f"{KIND}none, and is StepLR", None),
    "no schedule": ({"schedule": "step"}, {}, f"{KIND}StepLR, and is none", None),
    "another schedule": ({"schedule": "step"}, {"schedule": "cosine"}, "was StepLR, and is CosineAnnealingLR", None),
    "its number": ({"schedule": "step"}, {"schedule": "step 8"}, "step_size of StepLR is 8 in the code", True),
    "its function": ({"schedule": "warm 4"}, {"schedule": "warm 30"}, "step 12 was 1, and is 0.433. From", False),
    "the same function": ({"schedule": "warm 30"}, {"schedule": "warm 30"}, "", True),
    "a registered function": (
        {"schedule": "warm 4", "registered": True}, {"schedule": "warm 30", "registered": True},
        "step 12 was 1, and is 0.433. From", False,
    ),
    "fewer epochs": ({}, {"epochs": 1}, "exact.epoch is 1, and no batch was taken from exact: range(exact", False),
    "fewer epochs, but more than are done": ({}, {"epochs": 2}, "", False),
    "a seed": ({}, {"seed": 2}, "the seed is 2 in the code, and was 1 when this training began", True),
    "a seed that data come from": ({"drawn": True}, {"drawn": True, "seed": 2}, "The seed was 1, and is 2: put it", None),
    "rate": ({}, {"rate": 0.5}, "lr of SGD is 0.5 in the code, and was 0.05", True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("library", "changes"),
    [
        pytest.param("lightning", LIGHTNING, marks=pytest.mark.slow),
        pytest.param("transformers", TRANSFORMERS, marks=pytest.mark.slow),
        ("accelerate", ACCELERATE),
    ],
)
def test_a_change_is_told_of_once(library, changes, tmp_path):
    options = json.dumps({name: each[:2] for name, each in changes.items()})
    done = frameworks.run(Path(__file__).parent / "changing.py", library, options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, told in json.loads(done.stdout.splitlines()[-1]).items():
        _, _, says, is_same = changes[name]
        assert told["first"] == "", (name, told)
        assert says in told["said"], (name, told)
        assert told["is_refused"] == (is_same is None), (name, told)
        assert told["is_same"] == bool(is_same), (name, told)
        # what is used from there on is told of once; what has no effect each time
        again = told["second"].count("truestep: ") - 1
        is_each_time = "no effect" in told["said"] or "no batch" in told["said"]
        assert again <= is_each_time or is_same is None, (name, told)
        lines = told["said"].count("truestep: ")
        assert lines in ((0, 1) if is_same is None else (2,) if says else (1,)), (name, told)
