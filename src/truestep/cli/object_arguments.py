# SPDX-License-Identifier: Apache-2.0
"""`FILE.py:NAME` on the command line: the object of that name, with what the file prints kept off stdout."""

import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from truestep.core.errors import ModelError, OptionError, names_hint
from truestep.core.os_specific import is_path_with_folder

_WEIGHTS = (".pt", ".pth", ".ckpt", ".safetensors", ".bin")


def load_command_target(target: str) -> Any:
    """Import the file of `FILE.py:NAME` and return what NAME is there.

    Raises:
        OptionError: no such file or name, or importing the file starts a training.
        ModelError: importing the file raises.
    """
    from truestep.recipes.loading.parse import load_recipe

    path, name = _split_target(target)
    # What the file prints must not mix with the result: stdout may be read by a program.
    with redirect_stdout(sys.stderr), _refuse_training_on_import(path):
        try:
            module = load_recipe(path)
        except SyntaxError as error:
            raise OptionError(
                f"{error.filename}, line {error.lineno}: {error.msg}. The file is not valid Python."
            ) from error
        except (OptionError, ModelError):
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(
                f"Importing {path} raised {type(error).__name__}{_error_line_in_file(error, path)}: {error}"
            ) from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [
                each for each in vars(module) if not each.startswith("_") and callable(getattr(module, each))
            ]
            raise OptionError(f"{path} has no {name!r}. {names_hint(name, known)}")
        found = getattr(found, part)
    return found


def call_command_target(target: str) -> Any:
    """Return the module or batch of `FILE.py:NAME`, or what the function (or class) there gives when it is called."""
    from torch import nn

    made = load_command_target(target)
    if isinstance(made, nn.Module) or not callable(made):
        return made
    try:
        inspect.signature(made).bind()
    except TypeError as error:
        raise OptionError(
            f"{target} can't be called without arguments: {error}. Write a function that needs none, for example "
            f"def make_model(): return {target.rpartition(':')[2]}(...)."
        ) from None
    except ValueError:
        pass  # no signature to read: the call will tell
    with redirect_stdout(sys.stderr):
        try:
            return made()
        except Exception as error:
            raise ModelError(
                f"{target} raised {type(error).__name__}{_error_line_in_file(error, _split_target(target)[0])}: {error}"
            ) from error


def model_and_batch(target: str, inputs: "list[str]", batch: str | None) -> tuple[Any, Any]:
    """Return the model that a target makes, and the batch that is described or made by another target."""
    _split_target(target)  # what was given in the model's place is told of first
    if bool(inputs) == bool(batch):
        raise OptionError(
            "Say what the model takes: --input 1,3,224,224 (--input 2,12:int64 for whole numbers; once for each argument), or "
            "--batch FILE.py:make_batch."
        )
    if batch:
        return call_command_target(target), call_command_target(batch)
    tensors = tuple(_tensor_from_description(description) for description in inputs)
    return call_command_target(target), tensors


def _tensor_from_description(description: str) -> Any:
    import torch

    sizes, _, name = description.partition(":")
    dtype = getattr(torch, name or "float32", None)
    if not isinstance(dtype, torch.dtype) or not all(size.strip().isdigit() for size in sizes.split(",")):
        raise OptionError(f"--input {description} is no shape. Write 1,3,224,224, or with dtype 2,12:int64.")
    shape = [int(size) for size in sizes.split(",")]
    generator = torch.Generator().manual_seed(0)
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)  # the one index that every embedding has
    return torch.randn(shape, generator=generator).to(dtype)


def _split_target(target: str) -> tuple[Path, str]:
    file, _, name = target.rpartition(":")
    if Path(target).is_dir() or (target.endswith(_WEIGHTS) and Path(target).is_file()):
        raise OptionError(
            f"{target} is no FILE.py:NAME: a folder of a run and a file of weights know no model. Write a function that makes it, "
            f"def make_model(): model = Net(); ts.load_weights(model, {target!r}); return model, and give that: "
            "train.py:make_model."
        )
    if not file or not name or is_path_with_folder(name):  # of C:\train.py the colon is the drive's
        raise OptionError(
            f"{target!r} does not say what to take from which file. Write FILE.py:NAME, for example train.py:make_model."
        )
    path = Path(file)
    if not path.is_file():
        folder = path.parent
        names = {each.name for each in folder.glob("*.py")} if folder.is_dir() else set()
        raise OptionError(
            f"There is no file {file} in {Path.cwd()}. {names_hint(path.name, names) if names else ''}".rstrip()
        )
    return path, name


def _error_line_in_file(error: BaseException, path: Path) -> str:
    """Return where in the user's file an error came from."""
    return _last_stack_line_in_file(traceback.extract_tb(error.__traceback__), path, " at line")


def _last_stack_line_in_file(stack: traceback.StackSummary, path: Path, words: str) -> str:
    lines = [frame.lineno for frame in stack if frame.filename == str(path.resolve())]
    return f"{words} {lines[-1]}" if lines else ""


@contextmanager
def _refuse_training_on_import(path: Path) -> Iterator[None]:
    """Stop an import that trains: it would take hours, and write where the real training does."""
    import torch

    backward = torch.autograd.backward

    def refuse_training(*_: Any, **__: Any) -> None:
        line = _last_stack_line_in_file(traceback.extract_stack(), path, ", line")
        raise OptionError(
            f'Importing {path} starts a training (backward{line}). Put what trains under: if __name__ == "__main__":'
        )

    # Tensor.backward looks the function up at each call, so that this is enough for both.
    torch.autograd.backward = refuse_training
    try:
        yield
    finally:
        torch.autograd.backward = backward
