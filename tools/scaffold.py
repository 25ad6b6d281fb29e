# SPDX-License-Identifier: Apache-2.0
"""Starts a check of the doctor, an error of the explainer or a kind of clipping: its file to fill in, its tests, its lines.

    python tools/scaffold.py check loss LossSummed [--kind read|watch|probe]
    python tools/scaffold.py error cuda DeviceLost
    python tools/scaffold.py clip ClipToMedian

Only the standard library is needed. What is written fails its tests until the page and the method are filled in.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = Path("src/truestep/doctor/checks")
ERRORS = Path("src/truestep/explainer/errors")
CLIPS = Path("src/truestep/engine/clipping")
NAMES = Path("src/truestep/__init__.pyi")
CLIP_PAGE, API = Path("docs/choose-clip.md"), Path("docs/api.md")
CODE = re.compile(r"^    code = \"([A-Z]+)(\d{3})\"$", re.MULTILINE)
RETIRED = re.compile(r"\b([A-Z]+)(\d{3}) [a-z]")

READ = """\
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck, Unsure
from truestep.doctor.source.module import SourceModule


class {name}(SourceCheck):
{page}

    code = "{code}"

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        \"\"\"Report FILL IN.\"\"\"
        yield from ()
"""
WATCH = """\
from truestep.doctor.finding import Place
from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory
from truestep.doctor.watcher_base import Observations, Watcher


class {name}(Watcher):
{page}

    code = "{code}"

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        \"\"\"Report FILL IN.\"\"\"
        yield from ()
"""
PROBE = """\
from truestep.doctor.probe_base import Probe
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.watcher_base import Observations


class {name}(Probe):
{page}

    code = "{code}"

    def try_out(self, forward: ForwardCall) -> Observations:
        \"\"\"Report FILL IN.\"\"\"
        yield from ()
"""
KINDS = {"read": READ, "watch": WATCH, "probe": PROBE}
CHECK_PAGE = '''\
    """FILL IN: what is wrong, in one sentence.

    Why: FILL IN: what follows from it.

    Bad:
        loss.backward()  # here

    Good:
        loss.backward()

    Fix: FILL IN: what to write instead.

    Evidence: FILL IN: repository, commit and line, or the record and its counts; none while it is on trial.
    """'''
ERROR = '''\
from truestep.explainer.explainer import Explainer


class {name}(Explainer):
    """FILL IN: what happened, in one sentence.

    Means: FILL IN: why torch refuses it.

    Raises:
        torch.zeros(2) @ torch.zeros(3)

    Works:
        torch.zeros(2) @ torch.zeros(2)

    Fix: FILL IN: what to write instead.

    Cases:
        otherwise: FILL IN: what is known of this run: {{shapes}}.
    """

    messages = (r"FILL IN",)
'''
CLIP = '''\
# SPDX-License-Identifier: Apache-2.0
"""FILL IN: what is clipped, with its source."""

from dataclasses import dataclass

import torch
from torch import Tensor

from truestep.core.errors import OptionError, check_number
from truestep.engine.clipping.base import Clip, Gradients


@dataclass(frozen=True)
class {name}(Clip):
    """FILL IN: what it does to the gradients, in one sentence."""

    most: float

    def __post_init__(self) -> None:
        check_number("ts.{name}", "most", self.most, example=1.0)
        if not self.most > 0:
            raise OptionError(f"{name}({{self.most}}) FILL IN: what would happen, and what to write instead.")

    def apply(self, gradients: Gradients, norm: Tensor) -> None:
        """FILL IN: what happens in place."""
        torch._foreach_mul_(gradients.tensors, torch.clamp(self.most / norm, max=1.0))
'''
CLIP_ROW = (
    "| `ts.{name}(1.0)` | FILL IN: what it does | FILL IN: yes or no | FILL IN: author, place, year |\n"
)


def hyphenated(name: str) -> str:
    """Return LossSummed as loss-summed."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def next_code(root: Path, topic: str) -> str:
    """Return the code after the last one that the topic has given, retired ones included."""
    texts = [path.read_text("utf-8") for path in (root / CHECKS / topic).glob("*.py")]
    given = [found for text in texts for found in CODE.findall(text)]
    if not given:
        raise SystemExit(
            f"The topic {topic!r} has no check yet: write its first one by hand, with a prefix of its own."
        )
    prefix = given[0][0]
    retired = (root / CHECKS.parent / "retired.py").read_text("utf-8")
    given += [found for found in RETIRED.findall(retired) if found[0] == prefix]
    return f"{prefix}{max(int(number) for _, number in given) + 1:03}"


def write(root: Path, path: Path, text: str) -> Path:
    """Write a new file; one that is there already is an error."""
    if (root / path).exists():
        raise SystemExit(f"There is {path} already.")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, "utf-8")
    return path


def insert(root: Path, path: Path, before: str, text: str) -> Path:
    """Write some lines before another one of a file; that they are there already, or the other is not, is an error."""
    old = (root / path).read_text("utf-8")
    if text in old or old.count(before) != 1:
        raise SystemExit(f"{path} has no place for {text!r}: before the one line {before!r}.")
    (root / path).write_text(old.replace(before, text + before), "utf-8")
    return path


def start_clip(root: Path, name: str) -> list[Path]:
    """Write a kind of clipping with its lines; return the paths of what was written."""
    if not re.fullmatch(r"Clip([A-Z][a-z0-9]+)+", name):
        raise SystemExit(f"{name!r} is no name of a clip; write it as ClipToMedian.")
    stem = hyphenated(name).replace("-", "_").removeprefix("clip_")
    line = f"from truestep.engine.clipping.{stem} import {name} as {name}\n"
    lines = (root / NAMES).read_text("utf-8").splitlines(keepends=True)
    next_line = next(each for each in lines if each.startswith("from ") and each > line)
    return [
        write(root, CLIPS / f"{stem}.py", CLIP.format(name=name)),
        insert(root, NAMES, next_line, line),
        insert(root, CLIP_PAGE, "| a function, or", CLIP_ROW.format(name=name)),
        insert(root, API, ".. autoclass:: truestep.ClipFunction\n", f".. autoclass:: truestep.{name}\n\n"),
    ]


def start(root: Path, what: str, topic: str, name: str, kind: str) -> list[Path]:
    """Write the files; return their paths."""
    if not re.fullmatch(r"([A-Z][a-z0-9]+)+", name):
        raise SystemExit(
            f"{name!r} is no name of a class; write it as LossSummed, after the mistake and not the fix."
        )
    home = CHECKS if what == "check" else ERRORS
    topics = sorted(path.name for path in (root / home).iterdir() if (path / "__init__.py").exists())
    if topic not in topics:
        raise SystemExit(f"There is no topic {topic!r}. There are: {', '.join(topics)}.")
    file = home / topic / f"{hyphenated(name).replace('-', '_')}.py"
    licence = "# SPDX-License-Identifier: Apache-2.0\n"
    if what == "error":
        return [write(root, file, licence + ERROR.format(name=name))]
    head = licence + '"""FILL IN: the mistake in a few words."""\n\n'
    body = KINDS[kind].format(name=name, page=CHECK_PAGE, code=next_code(root, topic))
    cases = Path("tests/doctor/checks") / topic / f"{file.stem}.md"
    title = f"# Further cases of {hyphenated(name)}\n\n## FILL IN: what is different in this one\n\n"
    return [
        write(root, file, head + body),
        write(root, cases, f"{title}```python\nloss.backward()  # here\n```\n"),
    ]


def main() -> None:
    """Read the command line, write the files, say what they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest="what", required=True)
    for what in ("check", "error"):
        options = kinds.add_parser(what)
        options.add_argument("topic", help="the folder it belongs to")
        options.add_argument("name", help="the class, named after the mistake: LossSummed")
        options.add_argument("--kind", choices=KINDS, default="read", help="how a check finds its mistake")
        options.set_defaults(start=lambda it: start(ROOT, it.what, it.topic, it.name, it.kind))
    clip = kinds.add_parser("clip")
    clip.add_argument("name", help="the class: ClipToMedian")
    clip.set_defaults(start=lambda it: start_clip(ROOT, it.name))
    given = parser.parse_args()
    for path in given.start(given):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
