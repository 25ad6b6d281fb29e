# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a run find each other."""

import json
import os
import threading
import time

import pytest
from torch.distributed import HashStore

from truestep.run import process_group_setup


def test_a_word_of_an_earlier_run_is_not_waited_for(monkeypatch):
    """A rank that comes to its second run after rank 0: the offer with its first word is outdated as soon as it has another."""
    monkeypatch.setattr(
        process_group_setup.time, "monotonic", lambda: 0.0
    )  # no time passes, so nothing is waited out
    store, agreed = HashStore(), []
    store.set("truestep/word/0", "zero")
    store.set("truestep/word/1", "of the first run")
    offering = threading.Thread(
        target=lambda: agreed.append(process_group_setup._agree_on_store_name(store, 2)), daemon=True
    )
    offering.start()
    store.get("truestep/offer")
    store.set("truestep/word/1", "of the second run")
    until = time.time() + 60
    while time.time() < until and not agreed:
        offer = json.loads(store.get("truestep/offer"))
        if offer["words"][1] == "of the second run":
            store.set(f"truestep/yes/{offer['name']}/1", "1")
        time.sleep(0.001)
    offering.join(10)
    assert agreed


LAZY = "TORCH_GLOO_LAZY_INIT"


@pytest.mark.parametrize("own", [None, "0", "1", ""])
@pytest.mark.parametrize("fails", [False, True])
def test_sockets_are_opened_when_used_by_our_groups_alone_and_a_users_own_word_stands(
    monkeypatch, own, fails
):
    """What the user's code or torch makes behind the start is as without a run."""
    monkeypatch.delenv(LAZY, raising=False)
    if own is not None:
        monkeypatch.setenv(LAZY, own)
    before = dict(os.environ)
    try:
        with process_group_setup.lazy_gloo_connections():
            within = os.environ[LAZY]
            if fails:
                raise OSError("no port is free")
    except OSError:
        assert fails
    assert within == ("1" if own is None else own)
    assert dict(os.environ) == before
