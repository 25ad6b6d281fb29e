# SPDX-License-Identifier: Apache-2.0
"""Variables that matter are shown, secrets never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.core.secret_values import HIDDEN, hide_secret_variable
from truestep.machine.environment.facts import read_environment_variables

SAY_NOTHING = ("", "''", "None", "True", "False")  # whether there is one, and not which


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "abc"),
        ("WANDB_API_KEY", "0" * 40),
        ("NCCL_SECRET", "x"),
        ("MLFLOW_TRACKING_PASSWORD", "x"),
        ("HF_HOME", "hf_abcdefghijklmnop"),
        ("PYTHON_STARTUP_AUTH", "x"),
        ("WANDB_NAME", "a1b2c3d4e5a1b2c3d4e5a1b2c3d4e5a1b2c3d4e5"),
        ("hf_token", "x"),
    ],
)
def test_secrets_are_hidden(name, value):
    assert hide_secret_variable(name, value) == HIDDEN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8f3c0d11-0000-1111-2222-333344445555"),
        ("PYTHONPATH", "/a:/b"),
        *(("HF_TOKEN", value) for value in SAY_NOTHING),
        ("NCCL_DEBUG", "INFO"),
    ],
)
def test_what_is_no_secret_is_shown(name, value):
    assert hide_secret_variable(name, value) == value


def test_a_login_in_an_address_is_hidden():
    shown = read_environment_variables(
        {"https_proxy": "http://me:secret@proxy.example:8080", "HOME": "/root"}
    )
    assert shown == {"https_proxy": f"http://{HIDDEN}@proxy.example:8080"}


@given(st.from_regex(r"[A-Z]{2,8}", fullmatch=True), st.text(min_size=1))
def test_no_value_of_a_name_that_ends_in_a_secrets_word_is_ever_shown(prefix, value):
    for word in ("TOKEN", "API_KEY", "SECRET", "PASSWORD"):
        shown = hide_secret_variable(f"{prefix}_{word}", value)
        assert shown == (value if value in SAY_NOTHING else HIDDEN)
