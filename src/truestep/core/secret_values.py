# SPDX-License-Identifier: Apache-2.0
"""Secrets among what is shown or kept: one rule for variables, words of a command line, settings and texts."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

HIDDEN = "(hidden)"
HIDDEN_VALUE = re.compile(r"\*\*\*[0-9a-f]{8,}|\*\*\*|\(hidden\)")
"""What stands in the place of a secret: the word, or a hash that tells it from others."""
Hide = Callable[[str], str]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")  # of snake_case, camelCase, kebab-case
_SECRET_WORDS = {"TOKEN", "KEY", "APIKEY", "SECRET", "PASSWORD", "PASSWD", "PASS", "PWD", "CREDENTIAL", "CREDENTIALS",
                 "AUTH", "AUTHORIZATION", "BEARER", "JWT", "COOKIE", "PRIVATE", "SIGNATURE", "SIG", "WEBHOOK"}  # fmt: skip
# of which numbers are secret, too
_PASSWORD = re.compile(r"passw|passphrase|secret|credential", re.IGNORECASE)
_RUN_TOGETHER = re.compile(
    r"(api|access|account|auth|private|master|secret|encryption|signing|storage|wandb|openai|hf)[_-]?(keys?|tokens?)\b"
    r"|(db|my|user|root|admin)pass\b",
    re.IGNORECASE,
)
_OF_CODE = {
    "COMMIT",
    "REVISION",
    "REV",
    "SHA",
    "HASH",
    "DIGEST",
    "CHECKSUM",
}  # 40 hex letters there are git's
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")
_TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{12,}|\b(?:sk-|sk_live_|rk_live_|ghp_|gho_|ghu_|ghs_|github_pat_|glpat-|xox[abeprs]-|AKIA|ASIA|AIza|ya29\.|"
    r"npm_|pypi-|eyJ)[\w.-]{8,}|(?<=hooks\.slack\.com/services/)[\w/]+|\b[0-9a-f]{40}\b"
    r"|(?<=discord\.com/api/webhooks/)[\w/-]+|(?<=discordapp\.com/api/webhooks/)[\w/-]+|\b\d{8,10}:AA[\w-]{30,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)
_LOGIN = re.compile(r"(?<=://)[^/\s\"'<>]*(?=@)")
_HEADER = re.compile(r"(?<=\bbearer )\s*[\w.~+/=-]{4,}|(?<=\bbasic )\s*[A-Za-z0-9+/=]{8,}", re.IGNORECASE)
_NAMED = re.compile(r"(?<![\w.-])([\w.-]+)[\"']?\s*(?:==?|:(?!//))\s*|(?<!\S)(--[\w-]+)[ \t]+(?!-)")
_OPTION = re.compile(r"--?[\w-]+")
_LOGIN_OPTION = re.compile(r"-u|--(user|login|userpwd)")  # of curl and its kind: name:password
_USER = re.compile(r"(?<!\S)(?:-u|--user|--login|--userpwd)(?:[ \t]+|=)[^\s:/]+:(?=[^\s/])(\S+)")
_PAIR = re.compile(r"([^\s:/]+:)([^\s/]\S*)")
_VALUE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"',;&)\]}]+")
_NUMBER = re.compile(r"-?[\d.]+(e-?\d+)?")
_LONGEST_NUMBER = 8
_NOTHING = {"", "''", "None", "True", "False"}
_PLAIN = re.compile(r"true|false|none|null|yes|no|on|off", re.IGNORECASE)


def hide_secret_variable(name: str, value: str, hide: Hide = lambda _: HIDDEN) -> str:
    """Return `value`, hidden where its name or its looks say that it is a secret; a part of it where that part is one."""
    if is_secret_name(name):
        return value if value in _NOTHING or HIDDEN_VALUE.fullmatch(value) else hide(value)
    return value if _is_commit_hash(name, value) else hide_in_text(value, hide)


def hide_in_text(text: str, hide: Hide = lambda _: HIDDEN) -> str:
    """Return a text without its secrets: logins in addresses, `name=value` and `"name": "value"`, keys by their looks."""
    for pattern in (_LOGIN, _HEADER, _TOKEN):
        text = pattern.sub(
            lambda match: match[0] if HIDDEN_VALUE.fullmatch(match[0]) else hide(match[0]), text
        )
    text = _USER.sub(lambda match: hide_login_password(match[0], match[1], hide), text)
    return "".join(_hide_named_secrets(text, hide))


def hide_login_password(text: str, password: str, hide: Hide) -> str:
    """Return a text that ends with a password without it; numbers, of a user and a group, stay."""
    is_shown = password.isdigit() or HIDDEN_VALUE.fullmatch(password)
    return text if is_shown else text.removesuffix(password) + hide(password)


def hide_behind_login_option(option: str, word: str, hide: Hide) -> str | None:
    """Return `name:password` behind an option such as -u without the password; None where it is something else."""
    pair = _PAIR.fullmatch(word) if _LOGIN_OPTION.fullmatch(option) else None
    return hide_login_password(word, pair[2], hide) if pair else None


def hide_secrets(tree: Any, hide: Hide = lambda _: HIDDEN, name: str = "") -> Any:
    """Return a tree of dicts, lists and plain values without its secrets; all that is under a secret's name is one."""
    if isinstance(tree, Mapping):
        return {
            key: hide_secrets(value, hide, name if is_secret_name(name) else str(key))
            for key, value in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [
            _hide_option_value(word, value, hide, name)
            for word, value in zip(("", *tree), tree, strict=False)
        ]
    if isinstance(tree, str):
        return hide_secret_variable(name, tree, hide)
    if isinstance(tree, int | float) and not isinstance(tree, bool) and _PASSWORD.search(name):
        return hide(str(tree))
    return tree


def _hide_option_value(word: Any, value: Any, hide: Hide, name: str) -> Any:
    """Return an item of a list, which may be the value of the option before it."""
    option = word if isinstance(word, str) and _OPTION.fullmatch(word) else ""
    if isinstance(value, str) and not _OPTION.fullmatch(value):
        if (login := hide_behind_login_option(option, value, hide)) is not None:
            return login
        if option and is_secret_name(option):
            return hide_secret_variable(option, value, hide)
    return hide_secrets(value, hide, name)


def hide_secrets_and_hashes(tree: Any) -> Any:
    """Return what was kept as a page that is passed on shows it: no secret, and no hash of one, by which it could be guessed."""
    return _replace_hashes(hide_secrets(tree))


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret: `HF_TOKEN`, `--api-key`, `dbPassword`."""
    words = {word.upper() for word in _WORD.findall(name)}
    return bool(words & _SECRET_WORDS or _PASSWORD.search(name) or _RUN_TOGETHER.search(name))


def _replace_hashes(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _replace_hashes(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_replace_hashes(value) for value in tree]
    return HIDDEN_VALUE.sub(HIDDEN, tree) if isinstance(tree, str) else tree


def _hide_named_secrets(text: str, hide: Hide) -> Iterator[str]:
    done = 0
    for named in _NAMED.finditer(text):
        name = named[1] or named[2]
        if named.end() < done or not is_secret_name(name):
            continue
        if (value := _VALUE.match(text, named.end())) is not None:
            quotes = int(value[0][0] in "\"'" and len(value[0]) > 1)
            bare = value[0][1:-1] if quotes else value[0]
            is_hidden = HIDDEN_VALUE.match(text, value.start() + quotes)
            if bare and not is_hidden and not _is_harmless_value(name, bare):
                yield text[done : value.start()]
                yield value[0].replace(bare, hide(bare))
                done = value.end()
    yield text[done:]


def _is_harmless_value(name: str, value: str) -> bool:
    """Whether a value under a secret's name is none, in a text: a truth value, or a short number that is no password."""
    is_number = len(value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(value) and not _PASSWORD.search(name)
    return bool(is_number or _PLAIN.fullmatch(value))


def _is_commit_hash(name: str, value: str) -> bool:
    return bool({word.upper() for word in _WORD.findall(name)} & _OF_CODE) and bool(_COMMIT.fullmatch(value))
