# SPDX-License-Identifier: Apache-2.0
"""Random draws in a loss belong to the example: the same rows however the batch is split, tried again or gone through twice."""

import threading
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import truestep as ts
from truestep.engine.example_draws import ExampleDraws, PlaceInBatch
from truestep.engine.processes.batch_row_shares import RankShare

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def learner(make_learner, make_context, **options):
    return make_learner(nn.Linear(2, 1), context=make_context(seed=4), **options)


def rows_of(net, draws, size, micro_batch, **options):
    """What each of `draws` (functions of the number of rows) gave in one update, its parts put together."""
    seen = [[] for _ in draws]

    def loss(batch):
        for rows, draw in zip(seen, draws, strict=True):
            rows.append(draw(len(batch)))
        return net(batch).squeeze(1)

    net._parts.context.advance(3)
    net.update(loss, torch.ones(size, 2), micro_batch=micro_batch, **options)
    return [torch.cat(rows) for rows in seen]


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 70),
    cuts=st.lists(st.integers(1, 69), max_size=5),
    row=st.sampled_from([(), (1,), (3,), (100,), (700, 2), (0,)]),
    dtype=st.sampled_from(DTYPES),
    draw=st.sampled_from([ts.rand, ts.randn]),
)
def test_rows_do_not_depend_on_the_split(make_learner, make_context, size, cuts, row, dtype, draw):
    bounds = sorted({0, size, *(cut for cut in cuts if cut < size)})
    sizes = [stop - start for start, stop in pairwise(bounds)]
    draws = [
        lambda n: draw(n, *row, dtype=dtype),
        lambda n: draw((n, 5)),  # several draws in one loss, each its own
        lambda n: draw(torch.Size([n, 5])),
    ]
    whole = rows_of(learner(make_learner, make_context), draws, size, None)
    parts = rows_of(learner(make_learner, make_context), draws, size, sizes)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
    assert whole[0].dtype == dtype
    assert whole[0].shape == (size, *row)
    assert not torch.equal(whole[1], whole[2])


@pytest.mark.parametrize(("draw", "mean", "deviation"), [(ts.rand, 0.5, 12**-0.5), (ts.randn, 0.0, 1.0)])
def test_rows_are_distributed_as_torchs_are_and_no_two_are_equal(
    make_learner, make_context, draw, mean, deviation
):
    (rows,) = rows_of(
        learner(make_learner, make_context), [lambda n: draw(n, 3, dtype=torch.float64)], 30_000, 7_001
    )
    assert len(rows.flatten().unique()) == rows.numel()
    assert float(rows.mean()) == pytest.approx(mean, abs=0.01)
    assert float(rows.std()) == pytest.approx(deviation, rel=0.02)
    neighbours = torch.corrcoef(torch.stack([rows[:-1, 0], rows[1:, 0]]))[0, 1]
    assert abs(float(neighbours)) < 0.03


def test_each_update_each_step_and_each_seed_draws_its_own(make_learner, make_context):
    context = make_context(seed=1)
    a, b = (make_learner(nn.Linear(2, 1), context=context) for _ in range(2))
    seen = []

    def loss_of(net):
        def loss(batch):
            seen.append(ts.randn(len(batch)))
            return net(batch).squeeze(1)

        return loss

    for step in (1, 2):
        context.advance(step)
        a.update(loss_of(a), torch.ones(4, 2))
        b.update(loss_of(b), torch.ones(4, 2), micro_batch=4)
    other = make_learner(nn.Linear(2, 1), context=make_context(seed=2))
    other.update(loss_of(other), torch.ones(4, 2))
    assert len({tuple(rows.tolist()) for rows in seen}) == 5


def test_a_retry_and_every_evaluation_of_lbfgs_draw_the_same(make_learner, make_context):
    draws = [lambda n: ts.randn(n, 3), ts.rand]
    whole = rows_of(learner(make_learner, make_context), draws, 8, None)
    calls = []

    def fails_at_first(n):
        calls.append(n)
        if n == 8:
            raise MemoryError
        return ts.randn(n, 3)

    net = learner(make_learner, make_context)
    retried = rows_of(net, [fails_at_first, ts.rand], 8, "auto")
    assert calls == [8, 4, 4]
    assert all(torch.equal(a, b) for a, b in zip(whole, retried, strict=True))

    lbfgs = learner(make_learner, make_context, optimizer=lambda p: torch.optim.LBFGS(p, max_iter=3, lr=1e-3))
    evaluations = rows_of(lbfgs, draws, 8, 3)[0].split(8)
    assert len(evaluations) > 1
    assert all(torch.equal(rows, whole[0]) for rows in evaluations)


def test_accumulating_goes_on_where_the_part_before_ended(make_learner, make_context):
    whole = rows_of(learner(make_learner, make_context), [lambda n: ts.randn(n, 3), ts.rand], 8, None)
    net = learner(make_learner, make_context)
    net._parts.context.advance(3)
    first, second = [], []
    with net.accumulating() as update:
        for part in torch.ones(8, 2).split(3):
            first.append(ts.randn(len(part), 3))
            second.append(ts.rand(len(part)))
            update.backward(net(part).squeeze(1))
    assert torch.equal(torch.cat(first), whole[0])
    assert torch.equal(torch.cat(second), whole[1])


def block_of_rank(rank, place, sizes):
    """What a block of parts of such sizes draws on one rank, and how many rows were not those of its examples."""
    draws = ExampleDraws(lambda: 7)
    draws.open()
    draws.begin_rank_share(rank, place)
    parts = []
    for size in sizes:
        draws.begin(None)
        ts.rand(())
        parts.append(ts.randn(size, 3))
    other = draws.mismatched_row_count
    draws.close()
    return torch.cat(parts) if parts else torch.empty(0, 3), other


@settings(deadline=None, max_examples=60)
@given(data=st.data(), total=st.integers(1, 40), ranks=st.integers(1, 5), losses=st.integers(1, 3))
def test_the_parts_of_a_block_over_ranks_draw_what_one_process_draws(data, total, ranks, losses):
    """Whatever parts each rank cuts its rows into, also for several losses of the same batch."""
    alone, _ = block_of_rank(0, PlaceInBatch(0, total, total), [total] * losses)
    of_losses = alone.split(total)
    for rank in range(ranks):
        rows = RankShare(rank, ranks).of(total)
        here, sizes = rows.stop - rows.start, []
        for _ in range(losses):
            cuts = sorted(data.draw(st.lists(st.integers(0, here), max_size=4)))
            sizes += [stop - start for start, stop in pairwise([0, *cuts, here])]
        drawn, other = block_of_rank(rank, PlaceInBatch(rows.start, here, total), sizes)
        assert torch.equal(drawn, torch.cat([each[rows] for each in of_losses]))
        assert other is None


def test_rows_that_are_no_examples_are_each_ranks_own_and_said():
    places = [PlaceInBatch(0, 2, 4), PlaceInBatch(2, 2, 4), PlaceInBatch(4, 0, 4), None]
    for sizes in ([3], [2, 1], [1, 4], [64]):
        drawn, others = zip(
            *(block_of_rank(rank, each, sizes) for rank, each in enumerate(places)), strict=True
        )
        assert len(torch.unique(torch.cat(drawn), dim=0)) == 4 * sum(sizes)
        assert others == (*[sum(sizes)] * 3, None)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_checkpointed_layer_draws_the_same_when_it_runs_again(
    make_learner, make_context, reentrant, micro_batch
):
    def gradient(checkpointed):
        torch.manual_seed(0)
        net = make_learner(
            nn.Linear(2, 2), lambda p: torch.optim.SGD(p, lr=0.0), context=make_context(seed=4)
        )
        noisy = lambda x: (net(x) * ts.randn(x.shape)).square() + net(x) * ts.randn(x.shape)

        def loss(x):
            ts.randn(x.shape)
            y = checkpoint(noisy, x, use_reentrant=reentrant) if checkpointed else noisy(x)
            return (y * ts.randn(x.shape)).sum(1)

        x = torch.linspace(-1, 1, 16).reshape(8, 2).requires_grad_()
        net.update(loss, x, micro_batch=micro_batch)
        return net.weight.grad

    torch.testing.assert_close(gradient(checkpointed=True), gradient(checkpointed=False))


def test_a_checkpoint_that_puts_no_stream_back_is_refused(make_learner, make_context):
    net = learner(make_learner, make_context)

    def loss(x):
        noisy = lambda x: (net(x) * ts.randn(len(x), 1)).square()
        return checkpoint(noisy, x, use_reentrant=False, preserve_rng_state=False).squeeze(1)

    with pytest.raises(ts.LossError, match="preserve_rng_state=True"):
        net.update(loss, torch.ones(4, 2))


def test_outside_of_an_update_they_are_torchs_own(make_learner, make_context):
    for own, torchs in ((ts.rand, torch.rand), (ts.randn, torch.randn)):
        for arguments in ((3, 4), ((3, 4),), ((),)):
            torch.manual_seed(1)
            expected = torchs(*arguments)
            torch.manual_seed(1)
            assert torch.equal(own(*arguments), expected)
        expected = torchs(5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        assert torch.equal(own(5, generator=torch.Generator().manual_seed(2), dtype=torch.float64), expected)
    net = learner(make_learner, make_context)
    rows_of(net, [ts.rand], 4, None)
    torch.manual_seed(1)
    assert torch.equal(ts.rand(3), (torch.manual_seed(1), torch.rand(3))[1])  # also after an update
    with pytest.raises(ZeroDivisionError):
        net.update(lambda batch: 1 / 0, torch.ones(4, 2))
    torch.manual_seed(1)
    assert torch.equal(ts.rand(3), (torch.manual_seed(1), torch.rand(3))[1])  # and after one that failed


def test_another_thread_draws_as_outside(make_learner, make_context):
    """A thread that prepares data while an update runs takes no rows from it."""
    seen = []

    def draw(n):
        thread = threading.Thread(target=lambda: seen.append(ts.randn(7, 2)))
        thread.start()
        thread.join()
        return ts.randn(n, 2)

    net = learner(make_learner, make_context)
    (rows,) = rows_of(net, [draw], 4, 2)
    assert seen[0].shape == (7, 2)
    assert torch.equal(
        rows, rows_of(learner(make_learner, make_context), [lambda n: ts.randn(n, 2)], 4, None)[0]
    )


def test_one_number_for_the_whole_batch(make_learner, make_context):
    draw = lambda n: ts.rand(()).expand(n)
    (whole,) = rows_of(learner(make_learner, make_context), [draw], 7, None)
    (parts,) = rows_of(learner(make_learner, make_context), [draw], 7, 2)
    assert torch.equal(whole, parts)
    assert len(whole.unique()) == 1


def test_what_is_drawn_may_be_written_into(make_learner, make_context):
    draws = [lambda n: ts.randn(n, 3).mul_(0), lambda n: ts.randn(n, 3)]
    whole = rows_of(learner(make_learner, make_context), draws, 6, None)
    parts = rows_of(learner(make_learner, make_context), draws, 6, 2)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_other_numbers_of_rows_are_drawn_unsplit_and_refused_split(make_learner, make_context):
    net = learner(make_learner, make_context)
    assert rows_of(net, [lambda n: ts.randn(2 * n, 3)], 4, None)[0].shape == (8, 3)
    with pytest.raises(ts.LossError, match=r"4 rows of random numbers .*\(4, 3\).* holds 2 examples"):
        rows_of(net, [lambda n: ts.randn(2 * n, 3)], 4, 2)
    with pytest.raises(ts.OptionError, match="Leave generator= out"):
        rows_of(net, [lambda n: ts.randn(n, generator=torch.Generator())], 4, None)


def test_a_compiled_loss_says_that_draws_can_not_be_compiled(make_learner, make_context):
    net = learner(make_learner, make_context, compile=True)
    with pytest.raises(ts.OptionError, match=r"ts\.rand and ts\.randn in a loss can't be compiled"):
        net.update(lambda x: net(x).squeeze(1) * ts.randn(len(x)), torch.ones(4, 2))


def test_updates_of_two_threads_that_overlap_draw_each_its_own_and_leave_nothing_behind():
    """Each thread trains with a run of its own; the update that began first may end first."""
    mine, others = ExampleDraws(lambda: 1), ExampleDraws(lambda: 2)
    found, second_open, first_closed = {}, threading.Event(), threading.Event()

    def second():
        others.open()
        others.begin(0)
        second_open.set()
        first_closed.wait()
        found["second"] = ts.rand(3)
        others.close()

    mine.open()
    mine.begin(0)
    thread = threading.Thread(target=second)
    thread.start()
    second_open.wait()
    found["first"] = ts.rand(3)
    mine.close()
    torch.manual_seed(5)
    found["outside"] = ts.rand(3)
    first_closed.set()
    thread.join()
    for key, name in ((1, "first"), (2, "second")):
        alone = ExampleDraws(lambda key=key: key)
        alone.open()
        alone.begin(0)
        assert torch.equal(ts.rand(3), found[name])
        alone.close()
    torch.manual_seed(5)
    plain = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(ts.rand(3), plain)
    assert torch.equal(found["outside"], plain)


def test_updates_within_one_another_in_one_thread_may_end_in_any_order():
    outer, inner = ExampleDraws(lambda: 1), ExampleDraws(lambda: 2)
    for each in (outer, inner):
        each.open()
        each.begin(0)
    first = ts.rand(3)
    outer.close()
    inner.begin(0)
    assert torch.equal(ts.rand(3), first)
    inner.close()
    torch.manual_seed(5)
    outside = ts.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), outside)
