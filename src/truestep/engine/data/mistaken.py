# SPDX-License-Identifier: Apache-2.0
"""What people give as data that is a table, a file or several data sets, and what to write for each, line for line.

Told by their form: none of their libraries is imported.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from torch.utils.data import Dataset

from truestep.core.wording import a_type

_ROWS = (
    "    def rows():\n"
    "        for part in {batches}:\n"
    "            yield from part.to_pylist()\n"
    "    train = run.data(rows, batch_size=64)"
)
_BY_NUMBER = (
    '    data = datasets.load_dataset("parquet", data_files={files}, split="train").with_format("torch")\n'
    "    train = run.data(data, batch_size=64, shuffle=True)"
)
_FILES = {
    ".tar": (
        "Read its samples from front to back:\n"
        '    data = webdataset.WebDataset({name}, shardshuffle=False).decode("torch").to_tuple("png", "cls")\n'
        "    train = run.data(data, batch_size=64)"
    ),
    ".parquet": "Write\n" + _BY_NUMBER.replace("{files}", "{name}"),
}


def mistaken_data(data: Any) -> str | None:
    """Return what is wrong with something that looks like data, and what to write; None where nothing is known to be."""
    return next((said for look in _LOOKS if (said := look(data)) is not None), None)


def _name(data: Any) -> str | None:
    if not isinstance(data, (str, bytes, PurePath)):
        return None
    name = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
    for ending, advice in _FILES.items():
        if name.lower().endswith((ending, ending + ".gz")):
            return f"data is {data!r}, the name of a file and not data. {advice.format(name=repr(name))}"
    return (
        f"data is {data!r}, a name and not data. Open it first, as in "
        "torchvision.datasets.ImageFolder(path), numpy.load(path) or torch.load(path, weights_only=True)."
    )


def _several_sets(data: Any) -> str | None:
    values = [*data.values()] if isinstance(data, Mapping) else []  # a TensorDict has no truth of its own
    if not values or not all(map(_is_data_set, values)):
        return None
    splits = [*data]
    first = "train" if "train" in splits else splits[0]
    return (
        f"data is {a_type(data)} of the data sets {', '.join(map(repr, splits))}, and not of columns. Each is "
        f"a source of its own:\n    train = run.data(data[{first!r}], batch_size=64, shuffle=True)"
    )


def _is_data_set(value: Any) -> bool:
    return isinstance(value, Dataset) or (hasattr(value, "column_names") and hasattr(value, "features"))


def _table(data: Any) -> str | None:
    if not all(hasattr(data, name) for name in ("schema", "to_batches", "column_names", "to_pydict")):
        return None
    some = [*data.column_names][:2]
    return (
        f"data is a pyarrow {type(data).__name__}, whose [] asks for columns and not for samples. Give its columns:\n"
        f"    columns = {{name: torch.tensor(data[name].to_numpy()) for name in {some}}}\n"
        "    train = run.data(columns, batch_size=64, shuffle=True)"
    )


def _parquet_file(data: Any) -> str | None:
    if not all(hasattr(data, name) for name in ("iter_batches", "num_row_groups", "read_row_group")):
        return None
    rows = _ROWS.format(batches="pyarrow.parquet.ParquetFile(path).iter_batches()")
    return (
        f"data is {a_type(data)}, an open file and not samples. Read it from front to back, opened anew for each pass:\n"
        f"{rows}\nor have samples by number, which can be shuffled:\n{_BY_NUMBER.format(files='path')}"
    )


def _arrow_data_set(data: Any) -> str | None:
    if not all(hasattr(data, name) for name in ("schema", "to_batches", "scanner", "get_fragments")):
        return None
    return (
        f"data is {a_type(data)} of pyarrow.dataset, whose samples can't be asked for by number. Read it from front to "
        f"back:\n{_ROWS.format(batches='data.to_batches()')}\n"
        f"or have samples by number, which can be shuffled:\n{_BY_NUMBER.format(files='data.files')}"
    )


def _frame(data: Any) -> str | None:
    if not hasattr(data, "iloc") and not hasattr(data, "__dataframe__"):
        return None
    return (
        f"data is {a_type(data)}, whose [] asks for columns and not for samples. Write "
        "{'x': torch.tensor(frame[['a', 'b']].values), 'y': torch.tensor(frame['label'].values)}."
    )


def _class(data: Any) -> str | None:
    if not isinstance(data, type):
        return None
    return f"data is the class {data.__name__}. Make an object of it: {data.__name__}(...)."


_LOOKS: tuple[Callable[[Any], str | None], ...] = (
    _class,
    _name,
    _several_sets,
    _table,
    _parquet_file,
    _arrow_data_set,
    _frame,
)
