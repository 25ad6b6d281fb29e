# SPDX-License-Identifier: Apache-2.0
"""What stands in a run's files in the place of a secret: a hash that tells it from another one, salted by the run."""

import hashlib
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from truestep.core.atomic_files import read_regular_file, replacing_file
from truestep.core.secret_values import HIDDEN_VALUE, hide_in_text, hide_secrets

SALT = ".salt"
_HASH_BYTES = 12  # 96 bits


class RunSecretsHider:
    """Hides secrets in what a run keeps.

    The salt lies in a file of its own, readable by its owner alone, and made with the first secret: without it nobody can try
    passwords against what stands in the other files. Where it was lost, hidden values can't be compared and count as the same.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SALT
        self.salt = ""
        self.is_kept = False
        self.are_used = False

    def open(self) -> None:
        """Read the salt, or draw one."""
        try:
            self.use(read_regular_file(self._path).decode("ascii").strip(), is_kept=True)
        except (OSError, ValueError):
            self.use("", is_kept=False)

    def use(self, salt: str, *, is_kept: bool) -> None:
        """Take this salt, on another rank than that which has read it."""
        self.salt, self.is_kept = salt or secrets.token_hex(16), is_kept and bool(salt)

    def keep(self) -> None:
        """Write the salt down, if something was hidden, for whoever goes on with the run."""
        if self.are_used and not self._path.exists():
            # without it hidden values are not compared later: no reason to end a run
            with suppress(OSError), replacing_file(self._path, 0o600) as file:
                file.write(self.salt.encode())

    def hash(self, secret: str) -> str:
        """Return what stands in the place of a secret."""
        self.are_used = True
        hashed = hashlib.blake2b(
            secret.encode("utf-8", "backslashreplace"), key=self.salt.encode(), digest_size=_HASH_BYTES
        )
        return f"***{hashed.hexdigest()}"

    def hidden(self, tree: Any) -> Any:
        """Return a tree as it is kept."""
        return hide_secrets(tree, self.hash)

    def hide_secrets_in_text(self, text: str) -> str:
        """Return a text as it is kept, or said."""
        return hide_in_text(text, self.hash)

    def comparable(self, tree: Any) -> Any:
        """Return a hidden tree as it can be compared with another one: as it is, or without hashes of a salt that is lost."""
        if self.is_kept:
            return tree
        if isinstance(tree, dict):
            return {key: self.comparable(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return [self.comparable(value) for value in tree]
        return HIDDEN_VALUE.sub("***", tree) if isinstance(tree, str) else tree

    def reveal_hidden_values(self, saved: Any, now: Any) -> Any:
        """Return a saved tree with the program's own values where those are what was hidden in it."""
        return self._reveal_in_tree(saved, self.hidden(now), now)

    def _reveal_in_tree(self, saved: Any, hidden: Any, now: Any) -> Any:
        if isinstance(saved, dict) and isinstance(now, dict):
            return {
                key: self._reveal_in_tree(value, hidden[key], now[key]) if key in now else value
                for key, value in saved.items()
            }
        if isinstance(saved, list) and isinstance(now, list | tuple) and len(saved) == len(now):
            return [self._reveal_in_tree(*three) for three in zip(saved, hidden, now, strict=True)]
        return now if hidden != now and self.comparable(saved) == self.comparable(hidden) else saved
