# SPDX-License-Identifier: Apache-2.0
"""One rule says what is a secret, in a name and a value, a text, a tree, the words of a command."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.core.command_line_redaction import hide_command_secrets
from truestep.core.secret_values import HIDDEN, hide_in_text, hide_secrets

SECRET = "hunter2hunter2"
NAMES = (
    "api_key", "apiKey", "API_KEY", "api-key", "wandb_api_key", "openaikey", "password", "db_password", "dbPassword", "passwd",
    "secret", "client_secret", "access_token", "accessToken", "hf_token", "auth", "authorization", "credentials", "private_key",
    "X-Api-Key", "webhook",
)  # fmt: skip
# In the letters of a secret that people choose; what is quoted by a shell or by Python is another matter than a name and a value.
VALUES = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%*+-./:<=>?@^_~", min_size=6
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "{name}={value}",
        "--{name}={value}",
        '{{"{name}": "{value}"}}',
        "{{'lr': 0.1, '{name}': '{value}'}}",
        "Options(lr=0.1, {name}='{value}')",
        "https://host/path?a=b&{name}={value}&c=d",
        "x=y={name}={value}",
        "{name}: {value}",
    ],
)
def test_a_named_secret_in_a_text_is_hidden_and_the_rest_is_not(name, text):
    shown = hide_in_text(text.format(name=name, value=SECRET))
    assert shown == text.format(name=name, value=HIDDEN)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://me:hush@host/data", f"s3://{HIDDEN}@host/data"),
        ("postgres://me:hu@sh@host/x", f"postgres://{HIDDEN}@host/x"),
        ("redis://:hush@host", f"redis://{HIDDEN}@host"),
        ("Authorization: Bearer abc.def.ghi", None),
        ("-----BEGIN RSA PRIVATE KEY-----\nhush\n-----END RSA PRIVATE KEY-----", HIDDEN),
        ("https://hooks.slack.com/services/T0/B0/hush", f"https://hooks.slack.com/services/{HIDDEN}"),
        ("DefaultEndpointsProtocol=https;AccountKey=hushhush;Suffix=x", None),
        ("mysql --password hush x", f"mysql --password {HIDDEN} x"),
        ("curl -u joe:hush https://x", f"curl -u joe:{HIDDEN} https://x"),
        ("https://discord.com/api/webhooks/1/hush-hush", f"https://discord.com/api/webhooks/{HIDDEN}"),
        (f"123456789:AA{'h' * 33}", HIDDEN),
        ("of sk-proj-abcdefghijklmnop it is", f"of {HIDDEN} it is"),
    ],
)
def test_a_secret_is_known_by_its_looks(text, shown):
    hidden = hide_in_text(text)
    assert "hush" not in hidden
    assert "abc" not in hidden
    assert shown in (None, hidden)


@pytest.mark.parametrize(
    "text",
    [
        "https://host:8080/path@v1",
        "max_tokens=512",
        "tokenizer=bpe",
        "Attention(key_dim=64, is_private=False)",
        "monkey=brown",
        "AdamW(lr=0.001, betas=(0.9, 0.999))",
        "task-oriented-dialogue disk-cache-of-files",
        "12:30:05",
        "docker run --user 1000:1000 image",
        "--max-tokens 512 --lr 0.1",
    ],
)
def test_what_is_no_secret_is_shown(text):
    assert hide_in_text(text) == text


def test_a_commit_is_no_secret():
    commit = {"commit": "0" * 40, "git_sha": "a" * 40}
    assert hide_secrets(commit) == commit


@given(st.sampled_from(NAMES), VALUES)
def test_no_value_under_a_secrets_name_is_left_in_a_tree(name, value):
    tree = {"lr": 0.1, "of": [{name: value}, {name: [value, {"deep": value}]}], "flag": True}
    assert value not in str(hide_secrets(tree, lambda _: "-"))


@given(st.sampled_from(NAMES), VALUES, st.sampled_from([list, tuple]))
def test_no_word_of_a_command_in_a_tree_shows_a_secret(name, value, kind):
    if not value.startswith("-"):
        tree = {"argv": kind(["train.py", f"--{name}", value, "--lr", "0.1", "-u", f"joe:hush{value}"])}
        shown = hide_secrets(tree, lambda _: "***")["argv"]
        assert shown == ["train.py", f"--{name}", "***", "--lr", "0.1", "-u", "joe:***"]


@given(st.sampled_from(NAMES), VALUES)
def test_hiding_twice_is_hiding_once(name, value):
    for hidden in (HIDDEN, "***0123456789abcdef01234567"):
        once = hide_secrets({name: value, "text": f"{name}={value} https://{value}@host"}, lambda _: hidden)  # noqa: B023
        assert hide_secrets(once, lambda _: "again") == once


@given(st.sampled_from(NAMES), VALUES)
def test_no_word_of_a_command_shows_a_secret(name, value):
    for words in ([f"--{name}={value}"], [f"{name}={value}"], [f"+{name}={value}"]):
        assert value not in " ".join(
            hide_command_secrets(["train.py", *words, "--lr", "0.1"], lambda _: "***")
        )
    if not value.startswith("-"):
        assert value not in hide_command_secrets(["train.py", f"--{name}", value])


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-p", "hush"], ["-p", HIDDEN]),
        (["-k", "hush"], ["-k", HIDDEN]),
        (["-phush"], [f"-p{HIDDEN}"]),
        (["-p=hush"], [f"-p={HIDDEN}"]),
        (["-p", "0.5", "-k", "5"], ["-p", "0.5", "-k", "5"]),
        (["-k5", "-x", "data"], ["-k5", "-x", "data"]),
        (["--config={'api_key': 'hush'}"], [f"--config={{'api_key': '{HIDDEN}'}}"]),
        (["-H", "X-Api-Key: hush"], ["-H", f"X-Api-Key: {HIDDEN}"]),
        (["--data", "s3://me:hush@host/a"], ["--data", f"s3://{HIDDEN}@host/a"]),
        (["--keep", "3", "data/train"], ["--keep", "3", "data/train"]),
    ],
)
def test_the_words_of_a_command(words, shown):
    assert hide_command_secrets(["train.py", *words]) == ["train.py", *shown]
