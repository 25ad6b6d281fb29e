# SPDX-License-Identifier: Apache-2.0
"""Starts a check of the doctor or an error of the explainer: its file with a page to fill in, and its tests.

    python tools/scaffold.py check loss LossSummed [--kind read|watch|probe]
    python tools/scaffold.py error cuda DeviceLost

Only the standard library is needed. What is written fails its tests until the page and the method are filled in.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = Path("src/truestep/doctor/checks")
ERRORS = Path("src/truestep/explainer/errors")
CODE = re.compile(r"^    code = \"([A-Z]+)(\d{3})\"$", re.MULTILINE)
RETIRED = re.compile(r"\"([A-Z]+)(\d{3})\":")

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
from truestep.doctor.watcher import Observations, Watcher


class {name}(Watcher):
{page}

    code = "{code}"

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        \"\"\"Report FILL IN.\"\"\"
        yield from ()
"""
PROBE = """\
from truestep.doctor.probe import Probe
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.watcher import Observations


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
    catalogue = (root / CHECKS.parent / "catalogue.py").read_text("utf-8")
    given += [found for found in RETIRED.findall(catalogue) if found[0] == prefix]
    return f"{prefix}{max(int(number) for _, number in given) + 1:03}"


def write(root: Path, path: Path, text: str) -> Path:
    """Write a new file; one that is there already is an error."""
    if (root / path).exists():
        raise SystemExit(f"There is {path} already.")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, "utf-8")
    return path


def start(root: Path, what: str, topic: str, name: str, kind: str) -> list[Path]:
    """Write the files; return their paths."""
    if not re.fullmatch(r"([A-Z][a-z0-9]+)+", name):
        raise SystemExit(
            f"{name!r} is no name of a class; write it as LossSummed, after the fault and not the fix."
        )
    home = CHECKS if what == "check" else ERRORS
    topics = sorted(path.name for path in (root / home).iterdir() if (path / "__init__.py").exists())
    if topic not in topics:
        raise SystemExit(f"There is no topic {topic!r}. There are: {', '.join(topics)}.")
    file = home / topic / f"{hyphenated(name).replace('-', '_')}.py"
    head = '# SPDX-License-Identifier: Apache-2.0\n"""FILL IN: the fault in a few words."""\n\n'
    if what == "error":
        return [write(root, file, head + ERROR.format(name=name))]
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
    parser.add_argument("what", choices=["check", "error"])
    parser.add_argument("topic", help="the folder it belongs to")
    parser.add_argument("name", help="the class, named after the fault: LossSummed")
    parser.add_argument("--kind", choices=KINDS, default="read", help="how a check finds its fault")
    given = parser.parse_args()
    for path in start(ROOT, given.what, given.topic, given.name, given.kind):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
