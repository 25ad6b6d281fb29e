# SPDX-License-Identifier: Apache-2.0
"""The watch itself: what it wraps is put back, what breaks in it is reported, and it keeps to its window."""

import contextlib
import logging
import re
import sys
import threading
import types
import warnings

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from rich.console import Console
from torch import nn
from torch.nn.modules import module as module_calls
from torch.optim.optimizer import Optimizer
from torch.utils.checkpoint import checkpoint

import truestep as ts
from tests.support.scripted import scripted
from truestep.core.errors import OptionError
from truestep.doctor.runtime import recorder
from truestep.doctor.runtime.history import WINDOW
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.runtime.watch_schedule import EARLY, PERIOD, StopWatching
from truestep.doctor.watcher_base import Watcher


def training(steps, clear=True):
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        x, y = torch.randn(8, 4), torch.randint(3, (8,))
        if clear:
            opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    return net


def wrapped():
    return [
        torch.Tensor.backward,
        torch.autograd.backward,
        F.cross_entropy,
        Optimizer.__init__,
        Optimizer.zero_grad,
        nn.Module.train,
        nn.Module.zero_grad,
        torch.nn.utils.clip_grad_norm_,
        torch.optim.lr_scheduler.LRScheduler.step,
        torch.utils.data.DataLoader.__iter__,
        torch.compile,
    ]


HABITS = {
    "a statement": "ts.watch(net)\ntrain(3)\n",
    "kept": "watch = ts.watch(net, opt)\ntrain(3)\n",
    "by another name": "watch = truestep.watch\nkept = [watch(select=['GRAD'])]\n",
    "in a function": "def begin():\n    return ts.watch()\nbegin()\ntrain(1)\n",
}


@pytest.mark.parametrize("code", HABITS.values(), ids=HABITS)
def test_a_watch_without_a_block_says_that_it_watches_nothing(code):
    names = {"ts": ts, "truestep": ts, "net": nn.Linear(1, 1), "opt": None, "train": training}
    names["opt"] = torch.optim.SGD(names["net"].parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec(compile(code, "theirs.py", "exec"), names)
        names.clear()  # as at the end of a script
    assert re.search(r"never began\..* Write `with ts\.watch\(net\)", str(told[0].message))
    assert len(told) == 1
    line = next(number for number, each in enumerate(code.splitlines(), 1) if re.search(r"watch\(", each))
    assert f"made at theirs.py:{line} " in str(told[0].message)


def test_a_watch_that_never_began_has_no_findings_to_show(capsys):
    watch = ts.watch()
    with pytest.raises(OptionError, match="Nothing is watched"):
        _ = watch.findings
    Console().print(watch)
    with warnings.catch_warnings(action="ignore"):
        del watch
    assert "Nothing is watched" in capsys.readouterr().out


def test_a_watch_that_began_says_nothing_of_it():
    watch = ts.watch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(watch)
    assert watch.findings == []
    del watch


def test_everything_wrapped_is_put_back_also_after_an_exception():
    before = wrapped()
    with contextlib.suppress(ZeroDivisionError), ts.watch():
        assert all(now is not then for now, then in zip(wrapped(), before, strict=True))
        training(2)
        raise ZeroDivisionError
    assert wrapped() == before


def test_a_watch_finds_and_says_so():
    with ts.watch() as watch:
        training(5, clear=False)
    assert [finding.code for finding in watch.findings] == ["GRAD001"]
    assert watch.findings[0].place.path == __file__


def test_models_and_optimizers_made_before_are_known():
    net = nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with ts.watch(net, opt) as watch:
        for _ in range(4):
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
    assert [finding.code for finding in watch.findings] == ["GRAD001"]


def test_select_and_ignore_choose_the_checks():
    for options in ({"ignore": ["GRAD001"]}, {"select": ["LOSS"]}):
        with ts.watch(**options) as watch:
            training(5, clear=False)
        assert watch.findings == []


def test_a_watched_loop_ends_bit_identical():
    torch.manual_seed(3)
    plain = training(WINDOW + 5)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    with ts.watch():
        watched = training(WINDOW + 5)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters(), strict=True))


def test_a_watch_looks_closely_at_first_then_at_two_steps_of_32_and_later_of_256():
    live = []
    with ts.watch() as watch:
        net = nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2 * PERIOD + 4):
            live.append(watch.dispatcher.live)
            opt.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
    seen = {step for step, on in enumerate(live) if on}
    early = {step for step in range(PERIOD) if step >= EARLY and step % EARLY in (0, 1)}
    assert seen == {*range(WINDOW), *early, PERIOD, PERIOD + 1, 2 * PERIOD, 2 * PERIOD + 1}


def test_an_evaluation_after_the_window_is_watched():
    with ts.watch() as watch:
        net = training(WINDOW + 5)
        assert not watch.dispatcher.live
        net.eval()
        assert watch.dispatcher.live


def test_a_watcher_that_breaks_is_reported_and_the_rest_goes_on():
    watch = Watch()
    broken = next(each for each in watch.watchers if each.code == "LOSS017")

    def fail(*facts):
        raise ValueError("broken on purpose")

    watch.dispatcher._handlers["on_loss"].insert(0, (broken, fail))
    with watch:
        training(5, clear=False)
    assert [failure.code for failure in watch.failures] == ["LOSS017"]
    assert [finding.code for finding in watch.findings] == ["GRAD001"]


def test_two_watches_at_once_are_refused():
    with ts.watch(), pytest.raises(RuntimeError, match="already on"):
        ts.watch().__enter__()


def test_steps_of_other_threads_are_not_mixed_in():
    with ts.watch() as watch:
        training(3)
        worker = threading.Thread(target=training, args=(5, False))
        worker.start()
        worker.join()
        training(3)
    assert watch.findings == []


def test_training_in_one_thread_alone_is_watched():
    with ts.watch() as watch:
        worker = threading.Thread(target=training, args=(5, False))
        worker.start()
        worker.join()
    assert [finding.code for finding in watch.findings] == ["GRAD001"]


def test_a_watch_that_itself_breaks_says_so_and_lets_the_training_go_on(monkeypatch):
    def fail(*_):
        raise ValueError("broken on purpose")

    monkeypatch.setattr(recorder, "_reset_record", fail)
    with ts.watch() as watch:
        net = training(5, clear=False)
    assert net is not None
    assert [(failure.code, failure.error) for failure in watch.failures] == [
        ("watch", "ValueError: broken on purpose")
    ]
    assert set(watch.not_run().values()) == {"ValueError: broken on purpose"}


def test_a_model_compiled_before_the_watch_is_followed_from_outside():
    net = torch.compile(nn.Linear(4, 3), backend="eager")
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with warnings.catch_warnings(), ts.watch() as watch:
        warnings.simplefilter("error")
        for _ in range(4):
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
    assert [finding.code for finding in watch.findings] == ["GRAD001"]
    assert "compiled" in watch.not_run()["PARAM018"]
    assert "compiled" in watch.not_run()["LOSS017"]
    assert watch.history.unseen == {"Linear"}  # of a compiled model the variable holds a wrapper
    assert not module_calls._has_any_global_hook()
    torch._dynamo.reset()


def test_what_is_compiled_is_said_to_be_unseen():
    outer = nn.Sequential(
        nn.Linear(4, 4), scripted(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    )
    opt = torch.optim.SGD(outer.parameters(), lr=0.1)

    def loss_of(x, y):
        return F.cross_entropy(outer(x), y)

    with ts.watch() as watch:
        for _ in range(3):
            opt.zero_grad()
            loss_of(torch.randn(8, 4), torch.randint(3, (8,))).backward()
            opt.step()
        assert watch.history.unseen == {"Sequential"}
        torch.compile(backend="eager")(loss_of)
    assert watch.history.unseen == {
        "Sequential",
        "test_what_is_compiled_is_said_to_be_unseen.<locals>.loss_of",
    }
    assert (watch.findings, watch.failures) == ([], [])
    torch._dynamo.reset()


def test_names_imported_under_an_earlier_watch_are_wrapped_again():
    module = types.ModuleType("of_the_user")
    module.__file__ = "/of/the/user.py"
    sys.modules["of_the_user"] = module
    try:
        with ts.watch():
            module.cross_entropy = F.cross_entropy
        with ts.watch() as watch:
            module.cross_entropy(torch.zeros(8, 3, requires_grad=True).softmax(1), torch.zeros(8).long())
    finally:
        del sys.modules["of_the_user"]
    assert "LOSS001" in [finding.code for finding in watch.findings]


def test_a_closure_may_run_several_times_per_step():
    with ts.watch() as watch:
        net = nn.Linear(4, 3)
        opt = torch.optim.LBFGS(net.parameters(), max_iter=4)
        x, y = torch.randn(8, 4), torch.randint(3, (8,))

        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        for _ in range(5):
            opt.step(closure)
    assert watch.findings == []


def test_gradients_cleared_by_hand_count_as_cleared():
    for clear in (lambda p: p.grad.zero_(), lambda p: setattr(p, "grad", None)):
        with ts.watch() as watch:
            net = nn.Linear(4, 3)
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(6):
                F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
                opt.step()
                for parameter in net.parameters():
                    clear(parameter)
        assert watch.findings == []


def test_a_gan_of_two_optimizers_gives_nothing():
    with ts.watch() as watch:
        generator, critic = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
        opt_d = torch.optim.Adam(critic.parameters(), lr=1e-3)
        for _ in range(10):
            real, fake = torch.randn(8, 4), generator(torch.randn(8, 2))
            opt_d.zero_grad()
            ((critic(real) - 1).square().mean() + critic(fake.detach()).square().mean()).backward()
            opt_d.step()
            opt_g.zero_grad()
            (critic(fake) - 1).square().mean().backward()
            opt_g.step()
    assert watch.findings == []


def test_stopping_early_is_no_ordinary_exception():
    assert not issubclass(StopWatching, Exception)
    with pytest.raises(StopWatching), Watch(WatchOptions(max_steps=3)):
        training(10)


def test_watchers_are_new_for_each_watch():
    first, second = Watch(), Watch()
    assert {id(each) for each in first.watchers}.isdisjoint({id(each) for each in second.watchers})
    assert all(isinstance(each, Watcher) for each in first.watchers)


def test_training_with_another_optimizer_later_is_watched_as_sparsely():
    net = nn.Linear(4, 3)
    with ts.watch() as watch:
        live = []
        for _phase in range(2):
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(50):
                opt.zero_grad()
                F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
                opt.step()
                live.append(watch.dispatcher.live)
    assert not any(on for step, on in enumerate(live[20:50], 21) if step % EARLY > 1)
    assert sum(live[50:]) < 25
    assert watch.findings == []


def test_a_forward_that_raises_leaves_no_warning():
    class Picky(nn.Module):
        def forward(self, x, *, limit=0.0):
            if x.sum() > limit:
                raise ValueError("too large")
            return x

    with ts.watch() as watch, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="too large"):
            nn.Sequential(Picky())(torch.ones(2))
        Picky()(-torch.ones(2), limit=1.0)
    assert watch.failures == []


def test_an_evaluation_after_the_first_steps_is_seen_by_its_no_grad():
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with ts.watch() as watch:
        for _ in range(40):
            opt.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
        with torch.no_grad():
            print(net(torch.randn(8, 4)))
    assert [each.code for each in watch.findings] == ["EVAL002"]


def test_a_checkpoint_s_recomputation_in_training_mode_is_no_dropout_in_evaluation():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def part(self, x):
            return F.dropout(self.first(x), 0.1, self.training)

        def forward(self, x):
            return self.last(checkpoint(self.part, x, use_reentrant=False))

    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with ts.watch(ignore=["EVAL004"]) as watch:
        for _ in range(4):
            net.train()
            opt.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
            net.eval()
            with torch.no_grad():
                net(torch.randn(8, 4))
    assert watch.findings == []


@pytest.mark.parametrize("kind", ["outside", "replaced"])
def test_the_probe_touches_no_module_of_the_run_that_a_copy_would_share(kind):
    def train(watched):
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm1d(4)
        net = torch.nn.Sequential(norm, torch.nn.Linear(4, 3)) if kind == "replaced" else Applying(norm)
        if kind == "replaced":
            forward = net.forward
            net.forward = lambda x: forward(x) * 1.0
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with watched:
            for _ in range(3):
                opt.zero_grad()
                F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
                opt.step()
        return norm.running_mean.clone(), norm.num_batches_tracked.clone()

    plain, watched = train(contextlib.nullcontext()), train(ts.watch())
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))


class Applying(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.head = torch.nn.Linear(4, 3)
        Applying.norm = staticmethod(norm)

    def forward(self, x):
        return self.head(Applying.norm(x))


def test_what_a_model_prints_logs_and_warns_of_is_said_once_per_forward(capsys, logged):
    class Talking(torch.nn.Linear):
        def forward(self, x):
            print("out")
            print("err", file=sys.stderr)
            logging.getLogger("user").warning("logged")
            warnings.warn("careful", stacklevel=1)
            return super().forward(x)

    net = Talking(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught, ts.watch():
        warnings.simplefilter("always")
        for _ in range(3):
            opt.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
    said = capsys.readouterr()
    assert (said.out, said.err.count("err")) == ("out\n" * 3, 3)
    assert (len(logged.records), len(caught)) == (3, 3)


def test_a_module_with_an_equality_of_its_own_is_watched():
    class Compared(torch.nn.Linear):
        __hash__ = torch.nn.Module.__hash__

        def __eq__(self, other):
            raise RuntimeError("not to be compared")

    net = Compared(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with ts.watch() as watched:
        for _ in range(4):
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
    assert ([each.code for each in watched.findings], watched.failures) == (["GRAD001"], [])


def test_training_on_the_meta_device_breaks_no_check():
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with ts.watch() as watched:
            for _ in range(4):
                opt.zero_grad()
                F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
                opt.step()
    assert (watched.findings, watched.failures) == ([], [])


def test_a_watch_refuses_codes_and_things_that_it_does_not_know():
    with pytest.raises(OptionError, match="NOPE"):
        ts.watch(select=["NOPE"])
    with pytest.raises(OptionError, match="int"):
        ts.watch(3)


def test_a_watch_of_checks_that_a_block_does_not_run_is_refused():
    with pytest.raises(OptionError, match="follow nothing"):
        ts.watch(select=["DATA015", "DATA033"])


def test_a_watch_is_its_report_in_a_notebook():
    with ts.watch() as watch:
        assert "0 optimizer steps" in watch._repr_html_()


def calls_in(step):
    """Return how many calls of Python and C a step makes: the same on a busy machine."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.skipif(sys.getprofile() is not None, reason="something else counts calls")
def test_between_its_windows_a_watch_adds_twenty_calls_to_a_step():
    net = nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randint(3, (8,))

    def step():
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()

    for _ in range(3):
        step()
    plain = min(calls_in(step) for _ in range(3))
    with ts.watch() as watch:
        for _ in range(WINDOW + 5):
            step()
        assert not watch.dispatcher.live
        quiet = min(calls_in(step) for _ in range(3))
    assert quiet - plain <= 20


@pytest.mark.parametrize("died", [50, 130])
def test_relus_that_die_long_after_the_first_steps_are_found(died):
    with ts.watch() as watch:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for step in range(300):
            opt.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            opt.step()
            if step == died:
                with torch.no_grad():
                    net[0].bias.fill_(-100.0)
    assert [(each.code, each.evidence["after_steps"] - died in range(64)) for each in watch.findings] == [
        ("PARAM018", True)
    ]


def test_a_hinge_whose_examples_all_keep_their_margin_is_not_dead():
    class Hinge(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.relu = nn.Linear(4, 1), nn.ReLU()

        def forward(self, x, y):
            return self.relu(1 - y * self.score(x)).mean()

    with ts.watch() as watch:
        net = Hinge()
        opt = torch.optim.SGD(net.parameters(), lr=0.5)
        y = torch.tensor([1.0, -1.0] * 4)[:, None]
        for _ in range(300):
            opt.zero_grad()
            net(y * torch.ones(8, 4) + 0.1 * torch.randn(8, 4), y).backward()
            opt.step()
    assert [each.code for each in watch.findings] == []
