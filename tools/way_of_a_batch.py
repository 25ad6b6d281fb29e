# SPDX-License-Identifier: Apache-2.0
"""The way of one batch through the house: `python tools/way_of_a_batch.py` prints the functions that it enters, in order.

From the batch that the loop asks for to `optimizer.step()`, in a run of three batches whose last is looked at. A room is a
folder of `src/truestep`. `--write` puts the way into CONTRIBUTING.md.
"""

import re
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import truestep as ts

PACKAGE = Path(ts.__file__).parent
FUSED = str(PACKAGE / "engine" / "fused.py")
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
FIGURE = re.compile(r"(?<=<!-- made by tools/way_of_a_batch.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
PLAIN = re.compile(r"^(?!<(?:lambda|listcomp|dictcomp|setcomp|genexpr|module)>)")


class Way:
    """The functions of the package that were entered, up to the optimizer's step."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, str]] = []
        self.over = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, as `sys.setprofile` reports it."""
        if self.over or event != "call":
            return
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(f"{PACKAGE}/") and PLAIN.match(name):
            self.entered.append((file.removeprefix(f"{PACKAGE}/"), frame.f_code.co_qualname))
        # the step of an optimizer of torch, or the fused kernel that stands for it
        self.over = (name == "step" and "torch/optim" in file) or file == FUSED


def room(file: str) -> str:
    """Return the folder of `src/truestep` that a file lies in."""
    return file.partition("/")[0]


def visits(way: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return the rooms in the order in which they are entered, each with the files that are looked into there."""
    return [
        (name, list(dict.fromkeys(file.removeprefix(f"{name}/") for file, _ in entered)))
        for name, entered in groupby(way, key=lambda each: room(each[0]))
    ]


def num_returns(way: list[tuple[str, str]]) -> int:
    """Return how often the way comes back to a room that it has left."""
    rooms = [name for name, _ in visits(way)]
    return len(rooms) - len(set(rooms))


def way() -> list[tuple[str, str]]:
    """Train three batches on the CPU and follow the last one."""
    followed = Way()
    with (
        tempfile.TemporaryDirectory() as folder,
        ts.Run(f"{folder}/run", seed=0, device="cpu", doctor=False, quiet=True, progress=False) as run,
    ):
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.AdamW(p, lr=1e-2), clip=ts.ClipNorm(1.0))
        train = run.data(torch.randn(24, 3), batch_size=8, shuffle=True)
        for batch in run.batches(train):
            net.update(lambda rows: net(rows).squeeze(1).square(), batch)
            sys.setprofile(followed if run.step == 2 else None)
    sys.setprofile(None)
    return followed.entered


def figure(entered: list[tuple[str, str]]) -> str:
    """Return the way as CONTRIBUTING.md shows it."""
    rows = [
        f"| {at} | `{name}` | {', '.join(f'`{file}`' for file in files)} |"
        for at, (name, files) in enumerate(visits(entered), 1)
    ]
    names = list(dict.fromkeys(entered))
    return (
        f"The batch enters {len(entered)} functions ({len(names)} different ones), and comes back {num_returns(entered)} times "
        "to a room that it has left.\n\n"
        "| | room | files, as they are entered |\n|--:|---|---|\n" + "\n".join(rows) + "\n\n"
    )


def main() -> None:
    """Print the way, or write it into CONTRIBUTING.md."""
    entered = way()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(FIGURE.sub(lambda _: figure(entered), PAGE.read_text("utf-8")), "utf-8")
        return
    for at, (file, name) in enumerate(entered, 1):
        print(f"{at:4}  {file:40} {name}")
    print(figure(entered))


if __name__ == "__main__":
    main()
