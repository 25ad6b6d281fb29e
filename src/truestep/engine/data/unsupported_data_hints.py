# SPDX-License-Identifier: Apache-2.0
"""What people give as data that is a table, a file or several data sets, and what to write for each, line for line.

Told by their form: none of their libraries is imported.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from torch import nn
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from truestep.core.text_formatting import a_type, plural

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
_OF_LINES = (
    "Read it from front to back, opened anew for each pass:\n"
    "    def rows():\n"
    "        for file in {{files}}:\n"
    "            with {{open}} as lines:\n"
    "                yield from {rows}\n"
    "    train = run.data(rows, batch_size=64)"
)
_HUB = re.compile(r"(?:[\w-][\w.-]*/)?[\w-]+")  # imdb, glue, stanfordnlp/imdb: no ending, at most one folder
_FILES = {
    ".tar": (
        "Read its samples from front to back:\n"
        '    data = webdataset.WebDataset({name}, shardshuffle=False).decode("torch").to_tuple("png", "cls")\n'
        "    train = run.data(data, batch_size=64)"
    ),
    ".parquet": "Write\n" + _BY_NUMBER.replace("{files}", "{name}"),
    ".jsonl": _OF_LINES.format(rows="map(json.loads, lines)"),
    ".ndjson": _OF_LINES.format(rows="map(json.loads, lines)"),
    ".csv": _OF_LINES.format(rows="csv.DictReader(lines)"),
    ".tsv": _OF_LINES.format(rows="csv.DictReader(lines, delimiter='\\t')"),
}
_ONE_FILE = {
    ".txt": _OF_LINES.format(rows="(line.rstrip() for line in lines)"),
    ".json": "Write\n    train = run.data(json.load(open({name})), batch_size=64, shuffle=True)",
}
"""Of which a list may be one sample each, which the loop opens."""


def mistaken_data_message(data: Any, *, collates: bool = False) -> str | None:
    """Return what is wrong with something that looks like data, and what to write; None where nothing is known to be.

    A list of names of files may be what a function of the user's, who `collates`, opens.
    """
    looks = [look for look in _LOOKS if not (collates and look is _file_names_message)]
    return next((said for look in looks if (said := look(data)) is not None), None)


def _module_message(data: Any) -> str | None:
    if not isinstance(data, nn.Module) or isinstance(data, Dataset):
        return None
    return (
        f"data is {a_type(data)}, a model and not data. A model goes to run.learner(model, optimizer); here write "
        "run.data(data_set, batch_size=64)."
    )


def _file_name_message(data: Any) -> str | None:
    if not isinstance(data, (str, bytes, PurePath)):
        return None
    name = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
    if (advice := _advice_on_files(name, _FILES | _ONE_FILE)) is not None:
        return f"data is {data!r}, the name of a file and not data. {advice}"
    if isinstance(data, str) and _HUB.fullmatch(name) and not Path(name).exists():
        return (
            f"data is {data!r}, a name and not data. If it is a data set of the Hub, load it first:\n"
            f'    data = datasets.load_dataset({name!r}, split="train").with_format("torch")\n'
            "    train = run.data(data, batch_size=64, shuffle=True)\n"
            "texts in it are to be tokenised: collate=lambda rows: tokenizer([row['text'] for row in rows], padding=True, "
            'return_tensors="pt"). A file or folder is opened as in torchvision.datasets.ImageFolder(path) or numpy.load(path).'
        )
    return (
        f"data is {data!r}, a name and not data. Open it first, as in "
        "torchvision.datasets.ImageFolder(path), numpy.load(path) or torch.load(path, weights_only=True)."
    )


def _advice_on_files(name: str, known: Mapping[str, str] = _FILES, shown: str = "") -> str | None:
    """Return how to read the files that a name stands for; None where its ending is not known. `shown` is what to write for it."""
    for ending, advice in known.items():
        if name.lower().endswith((ending, ending + ".gz")):
            several = f"sorted(glob.glob({name!r}))" if "*" in name else f"[{name!r}]"
            # webdataset takes braces, and no *
            pattern = several if "*" in name and ending == ".tar" else repr(name)
            opened = 'gzip.open(file, "rt")' if name.lower().endswith(".gz") else "open(file)"
            files = "files" if shown else several
            return advice.format(name=shown or pattern, files=files, open=opened)
    return None


def _file_names_message(data: Any) -> str | None:
    """Names of files in a list would be samples: batches of text."""
    if (
        not isinstance(data, (list, tuple))
        or not data
        or not all(isinstance(x, (str, PurePath)) for x in data[:8])
    ):
        return None
    advice = _advice_on_files(str(data[0]), shown="[str(file) for file in files]")
    if advice is None or any(_advice_on_files(str(each)) is None for each in data[:8]):
        return None
    return f"data is {a_type(data)} of {plural(len(data), 'name')} of files ({str(data[0])!r}, ...), and not data. {advice}"


def _list_of_datasets_message(data: Any) -> str | None:
    if not isinstance(data, (list, tuple)) or not data or not all(map(_is_dataset, data[:64])):
        return None
    joins = "ChainDataset" if any(isinstance(each, IterableDataset) for each in data) else "ConcatDataset"
    return (
        f"data is {a_type(data)} of {plural(len(data), 'data set')}, and not of samples. Read them one behind the other,\n"
        f"    train = run.data(torch.utils.data.{joins}(data), batch_size=64)\n"
        f"or mixed,\n{_MIXED}"
    )


def _several_datasets_message(data: Any) -> str | None:
    values = [*data.values()] if isinstance(data, Mapping) else []  # a TensorDict has no truth of its own
    if not values or not all(map(_is_dataset, values)):
        return None
    splits = [*data]
    first = "train" if "train" in splits else splits[0]
    shuffle = "" if _is_iterable_dataset(data[first]) else ", shuffle=True"
    told = (
        f"data is {a_type(data)} of the data sets {', '.join(map(repr, splits))}, and not of columns. Each is "
        f"a source of its own:\n    train = run.data(data[{first!r}], batch_size=64{shuffle})"
    )
    is_whole = len(splits) == 1 or not _SPLITS.isdisjoint(splits)
    return told if is_whole else f"{told}\nor all of them, mixed:\n{_MIXED}"


_SPLITS = {"train", "test", "validation", "val", "valid", "dev"}  # nobody mixes these
_MIXED = (
    '    mixture = ts.Mixture({"a": a, "b": b}, weights={"a": 0.7, "b": 0.3})\n'
    "    train = run.data(mixture, batch_size=64)"
)


def _is_iterable_dataset(data: Any) -> bool:
    return isinstance(data, IterableDataset) or type(data).__name__ == "IterableDataset"  # that of `datasets`


def _is_dataset(value: Any) -> bool:
    return isinstance(value, Dataset) or (hasattr(value, "column_names") and hasattr(value, "features"))


def _arrow_table_message(data: Any) -> str | None:
    if not all(hasattr(data, name) for name in ("schema", "to_batches", "column_names", "to_pydict")):
        return None
    some = [*data.column_names][:2]
    return (
        f"data is a pyarrow {type(data).__name__}, whose [] asks for columns and not for samples. Give its columns:\n"
        f"    columns = {{name: torch.tensor(data[name].to_numpy()) for name in {some}}}\n"
        "    train = run.data(columns, batch_size=64, shuffle=True)"
    )


def _parquet_file_message(data: Any) -> str | None:
    if not all(hasattr(data, name) for name in ("iter_batches", "num_row_groups", "read_row_group")):
        return None
    rows = _ROWS.format(batches="pyarrow.parquet.ParquetFile(path).iter_batches()")
    return (
        f"data is {a_type(data)}, an open file and not samples. Read it from front to back, opened anew for each pass:\n"
        f"{rows}\nor have samples by number, which can be shuffled:\n{_BY_NUMBER.format(files='path')}"
    )


def _arrow_dataset_message(data: Any) -> str | None:
    if not all(hasattr(data, name) for name in ("schema", "to_batches", "scanner", "get_fragments")):
        return None
    return (
        f"data is {a_type(data)} of pyarrow.dataset, whose samples can't be asked for by number. Read it from front to "
        f"back:\n{_ROWS.format(batches='data.to_batches()')}\n"
        f"or have samples by number, which can be shuffled:\n{_BY_NUMBER.format(files='data.files')}"
    )


def _dataframe_message(data: Any) -> str | None:
    if not hasattr(data, "iloc") and not hasattr(data, "__dataframe__"):
        return None
    return (
        f"data is {a_type(data)}, whose [] asks for columns and not for samples. Write "
        "{'x': torch.tensor(frame[['a', 'b']].values), 'y': torch.tensor(frame['label'].values)}."
    )


def _data_module_message(data: Any) -> str | None:
    loaders = [name for name in ("train_dataloader", "val_dataloader") if callable(getattr(data, name, None))]
    if not loaders or not callable(getattr(data, "setup", None)) or isinstance(data, type):
        return None
    return (
        f"data is {a_type(data)}, a LightningDataModule, which makes loaders and is none. Make its parts ready, and give each:\n"
        "    module.prepare_data(); module.setup('fit')\n"
        "    train = run.data(module.train_dataloader())\n"
        "    valid = run.data(module.val_dataloader())"
    )


def _collate_function_message(data: Any) -> str | None:
    """A function is called for an iterable, with nothing or the epoch; one that takes samples makes a batch of them."""
    if not callable(data) or any(hasattr(data, name) for name in ("__iter__", "__getitem__", "sample")):
        return None
    with suppress(ValueError, TypeError):  # no signature to read: the call will tell
        each = inspect.signature(data).parameters.values()
        needed = [one.name for one in each if one.default is one.empty and one.kind not in _ANY]
        if not needed or (len(needed) == 1 and needed[0] not in _SAMPLES + _LISTS):
            return None
        name = getattr(data, "__name__", f"{type(data).__name__}(...)")
        return (
            f"data is the function {name}, which needs {' and '.join(needed)}; one that makes data is called with the epoch, or "
            "with nothing. A function that makes a batch of samples goes beside the data: run.data(data_set, batch_size=64, "
            f"collate={name}). One that gives samples of something is called in another: run.data(lambda: samples(path), "
            "batch_size=64)."
        )
    return None


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# what a function that makes a batch calls what it is given
_SAMPLES = (
    "features",
    "examples",
    "samples",
    "instances",
    "rows",
    "items",
    "elements",
    "data",
    "inputs",
    "images",
    "texts",
)
_LISTS = ("batch", "sample_list", "list_of_samples", "batch_list", "data_list")


def _dataset_class_message(data: Any) -> str | None:
    if not isinstance(data, type):
        return None
    return f"data is the class {data.__name__}. Make an object of it: {data.__name__}(...)."


def _loader_iterator_message(data: Any) -> str | None:
    if not isinstance(data, _BaseDataLoaderIter):
        return None
    return (
        f"data is {a_type(data)}, one pass of a DataLoader, which can't be made again for the next epoch or after a kill. Give the "
        "loader itself: run.data(loader), without iter(...)."
    )


_LOOKS: tuple[Callable[[Any], str | None], ...] = (
    _dataset_class_message,
    _module_message,
    _data_module_message,
    _collate_function_message,
    _loader_iterator_message,
    _file_name_message,
    _file_names_message,
    _several_datasets_message,
    _list_of_datasets_message,
    _arrow_table_message,
    _parquet_file_message,
    _arrow_dataset_message,
    _dataframe_message,
)
