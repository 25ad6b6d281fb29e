# SPDX-License-Identifier: Apache-2.0
"""Drawing a model beside torchview and torchvista: boxes of the first picture, its size, seconds of the processor and memory.

`python benchmarks/model/graph.py` prints a table in Markdown. Each tool draws each model in a process of its own, as its
own documentation shows it first; torchvista folds in the browser, so its boxes are those it hands to the page.
"""

import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import torch
from architectures import ALL
from torch import nn

import truestep as ts


class Language(nn.Module):
    """24 layers of a transformer, whose head has the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(24)]
        )
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words):
        hidden = self.words(words)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


MODELS = {
    "transformer, 24 layers": lambda: (Language(), torch.zeros(2, 16, dtype=torch.long)),
    "ResNet-50": lambda: (ALL["ResNet-50"].make(), torch.zeros(2, 3, 224, 224)),
    "siamese": lambda: (ALL["siamese, bilinear"].make(), ALL["siamese, bilinear"].batch()),
}


def by_ts(model, batch, folder):
    graph = ts.graph(model, batch)
    path = graph.save(folder / "net.html")
    return len(graph.picture().boxes), path.stat().st_size


def by_torchview(model, batch, folder):
    from torchview import draw_graph

    drawn = draw_graph(model, input_data=batch).visual_graph
    path = Path(drawn.render(folder / "net", format="svg"))
    boxes = [line for line in drawn.body if "label=<" in line and "->" not in line]
    return len(boxes), path.stat().st_size


def by_torchvista(model, batch, folder):
    from IPython.core.interactiveshell import InteractiveShell
    from torchvista import trace_model

    InteractiveShell.instance()
    trace_model(model, batch, export_format="html", export_path=str(folder / "net.html"))
    text = (folder / "net.html").read_text()
    return text.count('"node_type"'), len(text)


TOOLS = {"ts.graph": by_ts, "torchview 0.2.7": by_torchview, "torchvista 0.2.13": by_torchvista}


def measure(tool, model, pipe):
    """Send boxes, bytes, seconds and the mebibytes that the process grew at most, or the error's name."""
    torch.set_num_threads(1)
    made, batch = (part.eval() if isinstance(part, nn.Module) else part for part in MODELS[model]())
    with tempfile.TemporaryDirectory() as folder:
        try:
            TOOLS[tool](
                nn.Linear(4, 4).eval(), torch.zeros(2, 4), Path(folder)
            )  # what is imported when first used
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.process_time()
            boxes, size = TOOLS[tool](made, batch, Path(folder))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {str(error)[:80]}")
            return
    seconds = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    pipe.send((boxes, size, seconds, grown))


def main():
    spawned = multiprocessing.get_context("spawn")
    print("| model | tool | boxes | kB | s | MiB |\n|---|---|--:|--:|--:|--:|")
    for model in MODELS:
        for tool in TOOLS:
            ours, theirs = spawned.Pipe(duplex=False)
            process = spawned.Process(target=measure, args=(tool, model, theirs))
            process.start()
            found = ours.recv()
            process.join()
            if isinstance(found, str):
                print(f"| {model} | {tool} | {found} | | | |")
            else:
                boxes, size, seconds, grown = found
                print(f"| {model} | {tool} | {boxes} | {size / 1000:.0f} | {seconds:.1f} | {grown:.0f} |")


if __name__ == "__main__":
    main()
