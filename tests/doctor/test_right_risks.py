# SPDX-License-Identifier: Apache-2.0
"""Programs of strangers whose counts stand right beside means, and beside them faulty ones."""

import pytest

from tests.support.told import loud

# ── EVAL032: totals that need no division ──────────────────────────────────────────────────────

COUNTED = """
def evaluate(net, batches):
    loss, acc, {name} = 0.0, 0.0, 0
    for x, y in batches:
        out = net(x)
        conf = confusion_matrix(y, out)
        loss += F.cross_entropy(out, y).item()
        acc += accuracy(out, y)
        {name} += {added}
    loss = loss / len(batches)
    acc = acc / len(batches)
{then}
"""
CANCELS = [
    ("sums", "conf\n        last = 0", "    return loss, acc, to_miou(sums)"),
    ("conf", "confusion_matrix(y, out.argmax(1))", "    return loss, acc, to_miou(conf)"),
    ("conf", "confusion_matrix(y, out.argmax(1))", "    iou = conf.diag() / conf.sum(0)\n    return loss, acc, iou"),
    ("hist", "fast_hist(y, out, 3)", "    return loss, acc, per_class_iou(hist)"),
    ("matrix", "sklearn.metrics.confusion_matrix(y, out)", "    print(matrix)\n    return loss, acc"),
    ("total", "y.size(0)", "    correct = 3\n    return loss, acc, 100.0 * correct / total"),
    ("total", "len(y)", "    rate = acc / total\n    return loss, rate"),
    ("seen", "y.size(0)", "    return loss, acc, seen"),
    ("count", "x.shape[0]", "    return loss, acc, count"),
    ("n", "y.numel()", "    print(n)\n    return loss, acc"),
    ("hits", "(out.argmax(1) == y).sum().item()", "    return loss, acc, hits * 100.0 / len(batches.dataset)"),
]  # fmt: skip
LEFT = [
    ("weighed", "F.mse_loss(out, y).item() * len(x)", "    return loss, acc, weighed"),
    ("regret", "F.mse_loss(out, y).item()", "    return loss + acc + regret"),
    ("penalty", "out.square().mean().item()", "    print(loss, acc, penalty)"),
    ("score", "score_of(out, y)", "    return {'loss': loss, 'score': score}"),
]


@pytest.mark.parametrize(("name", "added", "then"), CANCELS)
def test_a_count_beside_means_is_no_total_left_undivided(name: str, added: str, then: str) -> None:
    assert not loud("EVAL032", COUNTED.format(name=name, added=added, then=then))


@pytest.mark.parametrize(("name", "added", "then"), LEFT)
def test_a_sum_beside_means_is_told(name: str, added: str, then: str) -> None:
    assert loud("EVAL032", COUNTED.format(name=name, added=added, then=then))
