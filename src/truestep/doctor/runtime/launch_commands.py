# SPDX-License-Identifier: Apache-2.0
"""Commands that start a script in a process of its own, given to the doctor where the script stands."""

import shlex
import shutil
from pathlib import Path

from truestep.core.errors import OptionError
from truestep.doctor.runtime.script import WatchedScript

# modules that `python -m` starts, and that start Python again, where no watch would be
_MODULES = {
    "accelerate",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
}
_OF_ONE_PROCESS = ("python", "ipython", "uv", "poetry")
# commands, wherever they are installed
_COMMANDS = {
    *(
        "accelerate",
        "composer",
        "deepspeed",
        "fabric",
        "horovodrun",
        "ipython",
        "lightning",
        "mpirun",
        "poetry",
        "python",
    ),
    *("python3", "srun", "torchrun", "uv"),
}


def refuse_launcher(script: WatchedScript) -> None:
    """Raise an OptionError where what is to be run is a command such as python, torchrun or `accelerate launch`.

    Raises:
        OptionError: it is one; with the command to write.
    """
    if script.is_module:
        is_launcher = script.name in _MODULES
    else:
        is_known = script.name in _COMMANDS or shutil.which(script.name) is not None
        is_launcher = is_known and not Path(script.name).is_file()
    if not is_launcher:
        return
    given = script.arguments
    place = next(
        (i for i, each in enumerate(given) if each == "-m" or each.endswith((".py", ".ipynb"))), None
    )
    behind = ["train.py"] if place is None else [*given[place:]]
    starter = ["python", "-m", script.name] if "." in script.name else [script.name]
    said = f"{shlex.join(starter)} starts the script in a process of its own, where no watch is. The doctor starts it itself: "
    said += shlex.join(["truestep", "doctor", *behind])
    if place is not None and not Path(script.name).name.startswith(_OF_ONE_PROCESS):
        watched = [*starter, *given[:place], "-m", "truestep", "doctor", *behind]
        said += f"\nFor several processes, each watched: {shlex.join(watched)}"
    raise OptionError(said)
