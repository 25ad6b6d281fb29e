# SPDX-License-Identifier: Apache-2.0
"""The scripts of the public repositories, in a copy in which they can run: with data, and with stand-ins."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORIES = json.loads((HERE / "repositories.json").read_text("utf-8"))
KEPT = {".py", ".txt", ".csv", ".json", ".content", ".cites"}
MAX_BYTES = 8_000_000


def copy_all(folder, work):
    """Copy what the scripts need of every repository, and lay the data beside it; return `work`."""
    if (work / "site-packages").exists():
        return work
    for repository in REPOSITORIES:
        source = folder / repository.replace("/", "+")
        for path in source.rglob("*"):
            if path.is_file() and path.suffix in KEPT and path.stat().st_size < MAX_BYTES:
                target = work / repository / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    extract(work / "RAK2315/ml-debug-env/server/bug_generator.py")
    lay_pictures(work / "eriklindernoren/PyTorch-GAN/data")
    lay_citations(work / "tkipf/pygcn/data/cora")
    # the name makes the doctor take them for installed packages
    shutil.copytree(HERE / "standins", work / "site-packages")
    return work


def extract(generator):
    """Write each script that a generator of broken scripts holds to a file of its own.

    The lines keep their numbers: so many empty ones stand before it.
    """
    tree = ast.parse(generator.read_text("utf-8"))
    for function in (each for each in tree.body if isinstance(each, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "buggy_code":
                text = ast.unparse(node.value)
                names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
                code = eval(text, {name: first_choice(function, name) for name in names})
                path = generator.with_name(f"{generator.name}@{node.lineno}.py")
                path.write_text("\n" * (node.lineno - 1) + code, "utf-8")


def first_choice(function, name):
    """Return the first value of `name = rng.choice([...])`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value.args[0])[0]
    raise LookupError(f"{function.name} never draws {name}")


def lay_pictures(folder):
    """Lay small random pictures where the scripts look for theirs."""
    import numpy as np
    import torch
    from PIL import Image

    pixels = np.random.default_rng(0)

    def picture(path, width=64, height=64):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)

    for name in ("monet2photo", "apple2orange"):
        for part in ("train/A", "train/B", "test/A", "test/B"):
            for number in range(8):
                picture(folder / name / part / f"{number}.png")
    for name in ("edges2shoes", "facades"):
        for part in ("train", "val", "test"):
            for number in range(64 if part == "train" else 16):
                picture(folder / name / part / f"{number}.png", width=128)
    lay_faces(folder / "img_align_celeba", picture)
    images = torch.randint(0, 256, (640, 28, 28, 3), dtype=torch.uint8)
    processed = folder / "mnistm" / "processed"
    processed.mkdir(parents=True)
    for part in ("train", "test"):
        torch.save((images, torch.randint(0, 10, (640,))), processed / f"mnist_m_{part}.pt")


def lay_faces(faces, picture):
    """Lay 64 pictures under the names of 4100, with their attributes."""
    for number in range(64):
        picture(faces / f"{number}.jpg")
    for number in range(64, 4100):  # some scripts keep 4000 for themselves
        os.link(faces / f"{number % 64}.jpg", faces / f"{number}.jpg")
    names = ["Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young"]
    rows = [f"{number}.jpg 1 -1 -1 1 -1" for number in range(4100)]
    (faces / "list_attr.txt").write_text("\n".join([str(len(rows)), " ".join(names), *rows]) + "\n")


def lay_citations(folder):
    """Lay a random graph of 1600 papers with 16 words and 7 subjects."""
    import numpy as np

    draw = np.random.default_rng(0)
    words, subjects = draw.integers(0, 2, (1600, 16)), draw.integers(0, 7, 1600)
    papers = zip(range(1600), words.tolist(), subjects.tolist(), strict=True)
    rows = [f"{number} {' '.join(map(str, row))} subject{subject}" for number, row, subject in papers]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cora.content").write_text("\n".join(rows) + "\n")
    cites = [f"{first} {second}" for first, second in draw.integers(0, 1600, (4000, 2)).tolist()]
    (folder / "cora.cites").write_text("\n".join(cites) + "\n")


def trains(path):
    return ".backward(" in path.read_text("utf-8", errors="replace")


def of_torch(path):
    text = path.read_text("utf-8", errors="replace")
    return "torch" in text


def read(work):
    """Return the document of `truestep read` over everything."""
    command = [sys.executable, "-m", "truestep", "read", "--output", "json", *REPOSITORIES]
    ran = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    return json.loads(ran.stdout)
