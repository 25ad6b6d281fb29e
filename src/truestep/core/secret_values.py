# SPDX-License-Identifier: Apache-2.0
"""Secrets among what is shown or kept: a variable of the environment, a word of the command line."""

import re

HIDDEN = "(hidden)"
_SECRET_WORDS = {"TOKEN", "KEY", "APIKEY", "SECRET", "PASSWORD", "PASSWD", "PASS", "PWD", "CREDENTIAL", "CREDENTIALS",
                 "AUTH", "COOKIE", "PRIVATE", "SIGNATURE"}  # fmt: skip
_SECRET_VALUE = re.compile(
    r"\b(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[bp]-|AKIA|eyJ)[\w.-]{8,}|\b[0-9a-f]{40}\b"
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")


def hide_secret_variable(name: str, value: str) -> str:
    """Return `value`, or "(hidden)" where name or value look like a secret; logins in addresses go too."""
    words = set(re.split(r"[_\W]+", name.upper()))
    if value and (words & _SECRET_WORDS or _SECRET_VALUE.search(value)):
        return HIDDEN
    return _LOGIN.sub(f"{HIDDEN}@", value)
