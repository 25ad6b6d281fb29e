# SPDX-License-Identifier: Apache-2.0
"""Public names: found where the stub says, listed for completion, and answered with the nearest name when mistyped."""

import subprocess
import sys

import pytest

import truestep
import truestep.nn
from truestep.engine.data.options import DataKeywords, DataOptions


def test_a_mistyped_name_is_answered_with_the_nearest():
    with pytest.raises(
        AttributeError, match=r"'truestep' has no attribute 'ClipNrom'. Did you mean 'ClipNorm'"
    ):
        truestep.ClipNrom
    with pytest.raises(AttributeError) as caught:
        truestep.warmup_cosin
    assert "warmup_cosine" in str(caught.value)
    assert len(str(caught.value)) < 200  # the nearest names, not all


@pytest.mark.parametrize("name", sorted({*truestep.nn.__all__} - {*truestep.__all__}))
def test_a_name_of_nn_asked_of_the_package_is_answered_with_where_it_is(name):
    with pytest.raises(AttributeError, match=rf"It is in ts\.nn: ts\.nn\.{name}\."):
        getattr(truestep, name)


def test_a_name_like_one_of_nn_is_answered_with_that():
    with pytest.raises(AttributeError, match=r"Did you mean 'nn\.add_spectral_norm'"):
        truestep.spectral_norm


def test_what_tools_ask_of_every_module_is_answered_without_a_search(monkeypatch):
    monkeypatch.setattr("truestep.core.errors.names_hint", lambda *_: pytest.fail("a search"))
    assert not hasattr(truestep, "__wrapped__")
    assert truestep.__version__


@pytest.mark.parametrize("package", [truestep, truestep.nn])
def test_completion_offers_every_public_name(package):
    assert set(package.__all__) <= set(dir(package))


def test_a_name_is_imported_once_and_kept(monkeypatch):
    monkeypatch.delitem(vars(truestep), "ClipNorm", raising=False)
    assert truestep.ClipNorm is vars(truestep)["ClipNorm"]


def test_without_torch_the_message_names_the_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import truestep\n"
        "try:\n    truestep.ClipNorm\n"
        "except ModuleNotFoundError as error:\n    sys.exit('truestep.ClipNorm needs PyTorch' not in str(error))\n"
        "sys.exit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_keywords_of_run_data_are_the_fields_of_its_options():
    fields = dict(DataOptions.__annotations__)
    assert DataKeywords.__annotations__ == fields
