# SPDX-License-Identifier: Apache-2.0
"""Split pairs and ordinary code in two halves by a hash of the repository's name, so that no one chooses."""

import hashlib
import json
from pathlib import Path

HERE = Path(__file__).parent


def half(repo: str) -> str:
    """`work` where sha256 of the name in lower case is even, else `held`."""
    digest = hashlib.sha256(repo.lower().encode()).hexdigest()
    return "work" if int(digest, 16) % 2 == 0 else "held"


def main() -> None:
    for name in ("pairs.jsonl", "ordinary.jsonl"):
        rows = [json.loads(line) for line in (HERE / name).read_text().splitlines() if line.strip()]
        for side in ("work", "held"):
            mine = [row for row in rows if half(row["repo"]) == side]
            (HERE / side).mkdir(exist_ok=True)
            (HERE / side / name).write_text("".join(json.dumps(row) + "\n" for row in mine))
            print(side, name, len(mine), "rows", len({row["repo"] for row in mine}), "repositories")


if __name__ == "__main__":
    main()
