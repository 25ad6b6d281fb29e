# SPDX-License-Identifier: Apache-2.0
"""What CUDA_VISIBLE_DEVICES lets this process see, read by CUDA's own rules.

A scheduler (SLURM, Kubernetes) gives a job its cards by this variable; who picks among cards stays
within it.
"""

from collections.abc import Sequence

from truestep.machine.gpus.records import Gpu


def parse_visible_devices(variable: str) -> list[str]:
    """Return the entries that count, in order.

    As in CUDA: reading stops at the first entry that is no device ("", "-1", "abc"), trailing letters of a
    number are ignored ("1gpu2" is 1), and a device named twice leaves none at all.
    """
    entries: list[str] = []
    for raw in variable.split(","):
        entry = raw.strip()
        if not entry.startswith(("GPU-", "MIG-")):
            digits = entry[: len(entry) - len(entry.lstrip("0123456789"))]
            if not digits:
                break
            entry = str(int(digits))
        if entry in entries:
            return []
        entries.append(entry)
    return entries


def visible_uuids(variable: str | None, cards: Sequence[Gpu]) -> set[str] | None:
    """Return the UUIDs of cards and MIG instances that the variable admits; None is no restriction.

    Numbers are read in bus order. A shortened UUID admits the one device that it begins.
    """
    if variable is None:
        return None
    known = [card.uuid for card in cards if card.uuid]
    known += [instance.uuid for card in cards for instance in card.mig_instances if instance.uuid]
    admitted: set[str] = set()
    for entry in parse_visible_devices(variable):
        if entry.isdigit():
            matching = [card.uuid for card in cards if card.index == int(entry) and card.uuid]
        else:
            matching = [uuid for uuid in known if uuid.startswith(entry)]
        if len(matching) != 1:
            break
        admitted.add(matching[0])
    return admitted
