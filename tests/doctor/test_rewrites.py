# SPDX-License-Identifier: Apache-2.0
"""A rewrite stands where it is right: in the window, outside of a guard; one that fails loses itself, not its finding."""

import pytest

from truestep.doctor.catalogue import source_checks
from truestep.doctor.check import At, SourceCheck
from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE
from truestep.doctor.replacement import apply_source_edits


def mended(text):
    (found,) = read_text(PRELUDE + text).findings
    return (
        apply_source_edits(PRELUDE + text, found.replacement.edits)[len(PRELUDE) :]
        if found.replacement
        else None
    )


def test_gradients_are_cleared_although_the_step_is_left_out():
    text = """
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    if torch.isfinite(loss):
        opt.step()
"""
    assert mended(text) == text.replace("y in loader:\n", "y in loader:\n    opt.zero_grad()\n")


def test_gradients_are_cleared_with_the_step_of_a_window():
    text = """
for i, (x, y) in enumerate(loader):
    (F.cross_entropy(net(x), y) / 4).backward()
    if (i + 1) % 4 == 0:
        opt.step()
"""
    assert mended(text) == text.rstrip("\n") + "\n        opt.zero_grad()\n"


@pytest.mark.parametrize("clear", ["opt.zero_grad()", "opt.zero_grad(set_to_none=True)"])
@pytest.mark.parametrize("between", ["", "        print(i)\n"])
def test_gradients_that_are_cleared_behind_the_step_are_cleared_once(clear, between):
    window = f"    if i % 4 == 3:\n        opt.step()\n{between}        {clear}\n"
    loss = "    (F.cross_entropy(net(x), y) / 4).backward()\n"
    head = "for i, (x, y) in enumerate(loader):\n"
    assert mended(f"{head}    {clear}\n{loss}{window}") == f"{head}{loss}{window}"


def test_nothing_is_unscaled_more_often_than_it_is_stepped():
    text = """
scaler = torch.amp.GradScaler("cuda")
for i, (x, y) in enumerate(loader):
    scaler.scale(F.cross_entropy(net(x), y) / 4).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
"""
    found = read_text(PRELUDE + text).findings
    assert [(each.code, each.replacement) for each in found] == [("AMP001", None)]


@pytest.mark.parametrize("strict", ["strict=False", "False"])
def test_what_is_left_out_on_purpose_is_not_made_strict(strict):
    assert mended(f'net.load_state_dict(torch.load("w.pt"), {strict})\n') is None


def test_a_rewrite_that_fails_leaves_its_finding(monkeypatch):
    class Failing(SourceCheck):
        """A module."""

        code = "GRAD001"

        @classmethod
        def page(cls):
            return type(source_checks()[0]).page()

        def read(self, module):
            yield At(module.tree.body[0], "here")

        def rewrite(self, module, node):
            raise IndexError("list index out of range")

    reading = read_text("import torch\n", checks=[Failing()])
    assert [each.message for each in reading.findings] == ["here"]
    assert [each.error for each in reading.failures] == ["IndexError: list index out of range"]
