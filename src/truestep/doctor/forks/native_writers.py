# SPDX-License-Identifier: Apache-2.0
"""Libraries that write files themselves, not through Python: the usual ones write into kept files, and the others are named."""

import re
import sys
import traceback
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy.lib._datasource
import safetensors
import torch
from torch import serialization

from truestep.core.user_frames import is_library_file
from truestep.doctor.forks.in_memory_files import InMemoryFiles

# what libraries say where the seal refused a file, or a folder is in a child's memory alone
_REFUSED = re.compile(
    r"not permitted|permission denied|read-?only|no such file|not exist|can(no|')t open|unable to open|failed (to open|writing)",
    re.IGNORECASE,
)


_EXCHANGED = ("safe_open", "serialize_file")
# names of the modules that have imported a function of safetensors under its name
_holders: dict[str, set[str]] = {name: set() for name in _EXCHANGED}
# modules that are looked at each time: the user's, and what is still being imported
_not_done: list[str] = []
# how many modules there were at the last look, and which of them was the last
_last: tuple[int, str] = (0, "")


def find_modules_to_patch() -> None:
    """Look which modules hold what a child exchanges; a child that looked at some thousand would copy 20 MB of memory.

    What a library's module holds is looked for once, and what the user's hold each time. The others are not even touched: behind a
    fork that writes into their memory, which the kernel then has to look after, page by page.
    """
    global _last
    functions = {name: getattr(safetensors, name) for name in _EXCHANGED}
    looked = dict.fromkeys([*_not_done, *_imported_since(*_last)])
    _not_done.clear()
    for module in looked:
        names = getattr(sys.modules.get(module), "__dict__", {})
        for name, function in functions.items():
            if names.get(name) is function:
                _holders[name].add(module)
        if not _is_imported_library(names):
            _not_done.append(module)
    _last = len(sys.modules), next(reversed(sys.modules))


def _imported_since(number: int, last: str) -> list[str]:
    """Return the modules behind so many, of which one is the last; all where some of those are gone."""
    later = list(islice(reversed(sys.modules), max(0, len(sys.modules) - number) + 1))
    return later[:-1] if number <= len(sys.modules) and later[-1] == last else list(sys.modules)


def _is_imported_library(names: Mapping[str, Any]) -> bool:
    """Whether a module of these names is a library's and no longer being imported."""
    file = names.get("__file__")
    is_of_library = isinstance(file, str) and is_library_file(file)
    return is_of_library and not getattr(names.get("__spec__"), "_initializing", False)


def redirect_library_writes(files: InMemoryFiles) -> None:
    """Have torch, safetensors and tokenizers write and read kept files, for the rest of the life of a child.

    Its parent has looked for holders.
    """
    of_numpy: Any = numpy.lib._datasource
    of_numpy._file_openers._file_openers[None] = open  # it kept the plain one
    _patch_torch_writers(files)
    _patch_safetensors_writers(files)
    if (tokenizer := vars(sys.modules.get("tokenizers", sys)).get("Tokenizer")) is not None:
        tokenizer.save = lambda self, path, pretty=True: _write_bytes(path, self.to_str(pretty).encode())


def why_file_refused(error: BaseException) -> str | None:
    """Return why nothing is known of a script that a library's refused file stopped; None where something else did."""
    if not _REFUSED.search(str(error)):
        return None
    library = type(error).__module__.partition(".")[0]
    if library in ("builtins", "__main__"):
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename != __file__]
        frame = frames[-1]
        library = (
            f"`{frame.line}`"
            if frame.line and not is_library_file(frame.filename)
            else _package_of_file(frame.filename)
        )
    return f"{library} writes or reads a file by itself, which a sealed child can't keep ({type(error).__name__}: {error})"


def _patch_torch_writers(files: InMemoryFiles) -> None:
    torch_opens: Any = serialization
    buffered, from_file = torch_opens._open_zipfile_writer_buffer, torch.UntypedStorage.from_file
    torch_opens._open_zipfile_writer_file = lambda name: buffered(open(name, "wb"))  # noqa: SIM115, PTH123
    storage: Any = torch.UntypedStorage
    storage.from_file = lambda name, *more, **how: from_file(files.path_for_native_code(name), *more, **how)
    scripts: Any = torch.jit
    for kind in (scripts.ScriptModule, scripts.RecursiveScriptModule):
        kind.save = lambda self, f, **how: _write_bytes(f, self.save_to_buffer(**how))


def _patch_safetensors_writers(files: InMemoryFiles) -> None:
    opens, serialize = safetensors.safe_open, safetensors.serialize
    _replace_in_all_modules(
        "safe_open", lambda filename, *more, **how: opens(files.path_for_native_code(filename), *more, **how)
    )
    _replace_in_all_modules(
        "serialize_file",
        lambda tensors, filename, metadata=None: _write_bytes(filename, serialize(tensors, metadata)),
    )


def _replace_in_all_modules(name: str, other: Any) -> None:
    """Exchange a function under its name in all modules that have imported it."""
    function = getattr(safetensors, name)
    for module in [sys.modules[each] for each in _holders[name] if each in sys.modules]:
        if vars(module).get(name) is function:
            setattr(module, name, other)


def _write_bytes(path: Any, contents: bytes) -> None:
    Path(path).write_bytes(contents)


def _package_of_file(path: str) -> str:
    """Return the name of the package, or of the module of Python's own, that a file belongs to."""
    below = re.split(r"(?:site-packages|dist-packages|lib/python[\d.]+)/", path)[-1]
    return re.split(r"[/.]", below)[0] or path
