# SPDX-License-Identifier: Apache-2.0
"""Plants a known fault in clean training scripts and counts how many the source checks find.

    python benchmarks/doctor/mutants.py FOLDER [--list]

FOLDER holds the repositories of `repositories.json`, each as OWNER+NAME. A script is a parent when reading
it gives no finding of `bug` or `risk`; a mutant counts as found when the fault's own code is reported within
3 lines.
"""

import argparse
import ast
import re
from collections import Counter
from pathlib import Path

from truestep.doctor.finding import Severity
from truestep.doctor.read import read_text
from truestep.doctor.source.module import SourceModule

NEAR = 3


def delete_zero_grad(text):
    lines = text.splitlines()
    hits = [i for i, line in enumerate(lines) if re.search(r"\.zero_grad\(\)\s*(#.*)?$", line)]
    if not hits:
        return None
    kept = [line for i, line in enumerate(lines) if i not in hits]
    steps = [i + 1 for i, line in enumerate(kept) if re.search(r"\.step\(", line)]
    return "\n".join(kept), {"GRAD001"}, steps


def swap_zero_grad_behind_backward(text):
    match = re.search(
        r"^( *)(\S+\.zero_grad\(\)[^\n]*)\n((?:.*\n){0,8}?)( *)(\S+\.backward\(\)[^\n]*)\n",
        text,
        re.MULTILINE,
    )
    if not match or match[1] != match[4] or "zero_grad" in match[3] or "def " in match[3]:
        return None
    new = f"{match[3]}{match[4]}{match[5]}\n{match[1]}{match[2]}\n"
    mutant = text[: match.start()] + new + text[match.end() :]
    return mutant, {"GRAD002"}, [mutant[: match.start()].count("\n") + new.count("\n")]


def delete_eval(text):
    lines = text.splitlines()
    hits = [i for i, line in enumerate(lines) if re.search(r"\.eval\(\)\s*(#.*)?$", line)]
    if not hits or not re.search(r"Dropout|BatchNorm", text):
        return None
    mutant = "\n".join(
        re.sub(r"\S+\.eval\(\)", "pass", line) if i in hits else line for i, line in enumerate(lines)
    )
    return mutant, {"EVAL002"}, list(range(hits[0], len(lines)))


def softmax_before_loss(text):
    match = re.search(
        r"^( *)(\w+) = (criterion|loss_func|loss_fn|F\.cross_entropy)\((\w+), ", text, re.MULTILINE
    )
    if not match or ("CrossEntropyLoss" not in text and "F.cross_entropy" not in text):
        return None
    line = f"{match[1]}{match[2]} = {match[3]}({match[4]}.softmax(1), "
    mutant = text[: match.start()] + line + text[match.end() :]
    return mutant, {"LOSS001"}, [mutant[: match.start()].count("\n") + 1]


def step_before_backward_is_lost(text):
    lines = text.splitlines()
    hits = [i for i, line in enumerate(lines) if re.search(r"^\s*\w*opt\w*\.step\(\)\s*(#.*)?$", line)]
    backward = [i for i, line in enumerate(lines) if ".backward()" in line]
    if len(hits) != 1 or not backward or "zero_grad" not in text:
        return None
    kept = [line for i, line in enumerate(lines) if i != hits[0]]
    return "\n".join(kept), {"GRAD007"}, [i + 1 for i in backward]


def sum_the_loss(text):
    match = re.search(r"^( *)(\w*loss\w*)\.backward\(\)[^\n]*\n", text, re.MULTILINE)
    if not match or not match[1]:
        return None
    first = f"{match[1]}running_total += {match[2]}\n"
    mutant = text[: match.end()] + first + text[match.end() :]
    if not re.search(r"^(import|from)", mutant, re.MULTILINE):
        return None
    mutant = mutant.replace("\nimport ", "\nrunning_total = 0\nimport ", 1)
    return mutant, {"MEM001"}, [mutant[: mutant.index("running_total +=")].count("\n") + 1]


OPERATORS = [
    delete_zero_grad,
    swap_zero_grad_behind_backward,
    delete_eval,
    softmax_before_loss,
    step_before_backward_is_lost,
    sum_the_loss,
]


def parents(folder):
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8", errors="replace")
        if ".backward(" not in text or ("import torch" not in text and "from torch" not in text):
            continue
        reading = read_text(text)
        if reading.unreadable or not any(trace.of("backward") for trace in SourceModule(text).traces):
            continue  # code in strings is not trained by this file
        clean = not any(each.severity in (Severity.BUG, Severity.RISK) for each in reading.findings)
        if clean:
            yield path, text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="name the mutants that were missed")
    options = parser.parse_args()
    made, found = Counter(), Counter()
    used = set()
    for path, text in parents(options.folder):
        for operator in OPERATORS:
            mutant = operator(text)
            if mutant is None:
                continue
            code, codes, lines = mutant
            try:
                ast.parse(code)
            except SyntaxError:
                continue
            made[operator.__name__] += 1
            used.add(path)
            hits = [each for each in read_text(code).findings if each.code in codes]
            near = any(abs(each.place.line - line) <= NEAR for each in hits for line in lines)
            found[operator.__name__] += near
            if options.list and not near:
                print(f"missed {operator.__name__}: {path.relative_to(options.folder)}")
    for name, count in made.items():
        print(f"{name:32} {found[name]:4} of {count:4}  ({found[name] / count:.0%})")
    total = sum(made.values())
    hits = sum(found.values())
    print(f"{'all':32} {hits:4} of {total:4}  ({hits / total:.0%}), {len(used)} scripts")


if __name__ == "__main__":
    main()
