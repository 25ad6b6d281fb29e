# SPDX-License-Identifier: Apache-2.0
"""Train a recipe inside a run."""

import os
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import truestep
from truestep.mirror.address import VARIABLE
from truestep.recipes.loading.parse import ParsedRecipe
from truestep.run.options import config_as_json_values


def start_recipe(prepared: ParsedRecipe) -> Path:
    """Train, and return the run's directory."""
    options = prepared.options
    if options.out is None and options.mirror is None and os.environ.get(VARIABLE):
        raise truestep.OptionError(
            f"{VARIABLE} keeps a run at the path of its directory, and without --out that is a new one at each start: a machine "
            f"that takes over would begin anew. Write --out runs/{prepared.name}/x."
        )
    directory = options.out or make_timestamped_directory(Path("runs") / prepared.name)
    config = {"recipe": prepared.name, **config_as_json_values(prepared.config)}
    try:
        run = truestep.Run(
            directory,
            seed=options.seed,
            precision=options.precision,
            device=options.device,
            resume=options.resume,
            config=config,
            saving=truestep.Saving(every_steps=options.save_every),
            mirror=options.mirror,
        )
    except truestep.TruestepError:
        with suppress(OSError):
            directory.rmdir()  # leaves it where anything is in it
        raise
    with run:
        prepared.module.train(run, prepared.config)
    return run.directory


def make_timestamped_directory(parent: Path) -> Path:
    """Make a folder named after the time (UTC), which no other run has."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for number in count(1):
        path = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise AssertionError
