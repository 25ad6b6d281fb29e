# SPDX-License-Identifier: Apache-2.0
"""What a run promises around its loop: directory, cursor, logging, stopping, failing."""

import json
import os
import signal
import textwrap
import warnings

import pytest
import torch
import torch.nn.functional as F
from support import warm
from torch import nn

import truestep as ts
from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.listing import checkpoint_overview
from truestep.report.metrics import read_metrics

POINTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(20) % 3


def run_in(directory, **options):
    return ts.Run(directory, progress=False, **options)


def learner_of(run, **options):
    torch.manual_seed(0)
    return run.learner(nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.1), **options)


def loss_of(net):
    return lambda batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none")


def train(run, net, data, epochs=2):
    for _ in run.epochs(epochs):
        for batch in run.batches(data):
            net.update(loss_of(net), batch)


def test_a_run_leaves_all_its_files(tmp_path):
    with run_in(tmp_path / "run", config={"lr": 0.1}) as run:
        train(run, learner_of(run), run.data((POINTS, LABELS), batch_size=8))
    names = {entry.name for entry in (tmp_path / "run").iterdir()}
    assert {
        "config.json",
        "environment.json",
        "choices.json",
        "metrics.jsonl",
        "checkpoints",
        "report.html",
    } <= names
    assert json.loads((tmp_path / "run/config.json").read_text())["config"] == {"lr": 0.1}


def test_steps_and_epochs_are_counted_in_batches(tmp_path):
    with run_in(tmp_path / "run") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=8)
        seen = []
        for epoch in run.epochs(2):
            for batch in run.batches(data):
                net.update(loss_of(net), batch)
                seen.append((epoch, run.step, len(batch[0])))
    assert seen == [(0, 1, 8), (0, 2, 8), (0, 3, 4), (1, 4, 8), (1, 5, 8), (1, 6, 4)]


def test_a_finished_run_does_nothing_more_however_often_it_is_started(tmp_path):
    for _ in range(5):
        with run_in(tmp_path / "run") as run:
            net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=8)
            train(run, net, data)
            weights = net.weight.clone()
            assert run.step == 6
    with run_in(tmp_path / "run") as run:
        net = learner_of(run)
        run.data((POINTS, LABELS), batch_size=8)
        net.evaluate(loss_of(net), [(POINTS, LABELS)])  # an evaluation alone restores the run too
        assert torch.equal(weights, net.weight)


def test_more_epochs_go_on_where_the_run_ended(tmp_path):
    with run_in(tmp_path / "two") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=8, shuffle=True)
        train(run, net, data, epochs=1)
        train(run, net, data, epochs=3)
        expected = net.weight.clone()
    with run_in(tmp_path / "one") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=8, shuffle=True)
        train(run, net, data, epochs=3)
    assert torch.equal(expected, net.weight)


def test_another_configuration_in_the_directory_is_refused_with_the_differences(tmp_path):
    with run_in(tmp_path / "run", seed=1, config={"lr": 0.1}):
        pass
    with pytest.raises(
        ts.RunDirectoryError, match=r"config\.lr: 0\.1 there, 0\.2 now\n  seed: 1 there, 2 now"
    ):
        run_in(tmp_path / "run", seed=2, config={"lr": 0.2})


def test_a_run_that_was_killed_while_it_wrote_its_first_file_starts_all_the_same(tmp_path):
    directory = tmp_path / "run"
    process = os.fork()
    if process == 0:
        os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
        run_in(directory)
        os._exit(1)
    assert os.waitpid(process, 0)[1] == signal.SIGKILL
    assert [path.name for path in (directory / "checkpoints").iterdir()] == [
        ".lock"
    ]  # it is held before anything is written
    (left,) = directory.glob("*.partial")
    os.utime(left, (0, 0))
    run = run_in(directory)
    train(run, learner_of(run), run.data((POINTS, LABELS), batch_size=8))
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


def test_a_directory_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(ts.RunDirectoryError, match=r"holds no run of Truestep \(thesis\.tex\)"):
        run_in(tmp_path)


@pytest.mark.parametrize(
    ("resume", "there", "message"),
    [("never", True, "holds a run already"), ("must", False, "no run to go on")],
)
def test_resume_can_be_forbidden_and_demanded(tmp_path, resume, there, message):
    if there:
        run_in(tmp_path / "run").close()
    with pytest.raises(ts.RunDirectoryError, match=message):
        run_in(tmp_path / "run", resume=resume)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": "always"}, "auto"),
        ({"precision": "fp16-mix"}, "Did you mean 'fp16-mixed'"),
        ({"nonfinite": "ignore"}, "raise"),
        ({"device": "cuda:7"}, "can't be used here"),
        ({"log_every": 0}, "at least 1"),
        ({"log_every": "20"}, r"write ts\.Run\(log_every=20\)"),
    ],
)
def test_unknown_options_are_answered_with_what_there_is(tmp_path, options, message):
    with pytest.raises(ts.OptionError, match=message):
        run_in(tmp_path / "run", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every_steps": 0}, r"every_steps=0\): no step is a multiple of it\. Give at least 1"),
        ({"every_steps": "3"}, r"every_steps='3'.*whole number.*write ts\.Saving\(every_steps=3\)"),
        ({"every_steps": "three"}, r"every_steps='three'.*whole number.*ts\.Saving\(every_steps=1000\)"),
        ({"every_steps": 2.5}, "every_steps=2.5.*whole number"),
        ({"every_seconds": "60"}, r"ts\.Saving\(every_seconds=300\.0\)"),
        ({"every_seconds": -1}, "give a positive time"),
        ({"epoch_seconds": None}, "epoch_seconds=None.* was given a NoneType"),
        ({"keep_last": "2"}, r"ts\.Saving\(keep_last=2\)"),
        ({"keep_last": 0}, "at least 1"),
        ({"keep_every": True}, "keep_every=True.* was given a bool"),
        ({"rollback_after": "5"}, r"ts\.Saving\(rollback_after=5\)"),
        ({"rollback_after": 0}, "rollback_after=0: give at least 1"),
        ({"every_seconds": float("nan")}, "every_seconds=nan: no time"),
        ({"at_epoch_end": "no"}, r"ts\.Saving\(at_epoch_end='no'\): write True or False"),
        ({"background": 1}, "background=1"),
        ({"best": 5}, r"ts\.Saving\(best=5\): give the name"),
        ({"best": ""}, "give the name"),
        ({"best": "valid_loss"}, 'the highest would be kept.*Write best_mode="min", or best_mode="max"'),
        ({"best": "val/rmse"}, 'Write best_mode="min"'),
        ({"best": "accuracy", "best_mode": "lowest"}, "write best_mode='min'"),
        ({"keep_best": -1}, "best at least 0"),
    ],
)
def test_a_saving_that_means_nothing_is_refused(options, message):
    with pytest.raises(ts.OptionError, match=message):
        ts.Saving(**options)


@pytest.mark.parametrize(("mode", "higher_is_better"), [("min", False), ("max", True)])
def test_the_best_of_a_loss_is_what_was_written(mode, higher_is_better):
    saving = ts.Saving(best="valid_loss", best_mode=mode)
    assert saving.is_better(2.0, than=1.0) is higher_is_better
    assert saving.retention().best_mode == mode
    assert ts.Saving(best="reward").retention().best_mode == "max"


@pytest.mark.parametrize(
    ("statuses", "message"),
    [
        (5, "exit_statuses=5: give a dict"),
        ({"SIGTERM": 1}, "'SIGTERM' is no signal"),
        ({signal.SIGKILL: 1}, "is no signal that a process can catch"),
        ({signal.SIGTERM: 300}, "300 is no exit status"),
        ({signal.SIGTERM: "1"}, "'1' is no exit status"),
    ],
)
def test_statuses_that_no_process_can_exit_with_are_refused(tmp_path, statuses, message):
    with pytest.raises(ts.OptionError, match=message):
        run_in(tmp_path / "run", exit_statuses=statuses)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("directory", [5, b"runs"])
def test_a_directory_that_is_no_path_is_refused(directory):
    with pytest.raises(ts.OptionError, match="Give the directory of the run"):
        run_in(directory)


def test_a_layer_that_is_replaced_between_two_passes_is_refused(tmp_path):
    with run_in(tmp_path / "run") as run:
        net = run.learner(nn.Sequential(nn.Linear(4, 3)), lambda p: torch.optim.SGD(p, lr=0.1))
        data = run.data((POINTS, LABELS), batch_size=10)
        train(run, net, data, epochs=1)
        net.module[0] = nn.Linear(4, 3)
        with pytest.raises(ts.OptionError, match=r"2 parameters of 'sequential' \(0\.weight, 0\.bias\)"):
            train(run, net, data)


def test_batches_of_something_that_run_data_did_not_make_are_refused(tmp_path):
    with run_in(tmp_path / "run") as run, pytest.raises(ts.DataError, match=r"run\.data"):
        run.batches([1, 2, 3])


def test_other_data_than_the_run_was_saved_with_is_refused_and_nothing_is_touched(tmp_path):
    with run_in(tmp_path / "run") as run:
        train(run, learner_of(run), run.data((POINTS, LABELS), batch_size=8))
    with run_in(tmp_path / "run") as run:
        net, data = learner_of(run), run.data((POINTS[:15], LABELS[:15]), batch_size=8)
        before = net.weight.clone()
        with pytest.raises(ts.DataError, match="not what the run was saved with"):
            train(run, net, data)
        assert torch.equal(before, net.weight)


def test_another_model_than_the_run_was_saved_with_is_refused_with_every_difference(tmp_path):
    with run_in(tmp_path / "run") as run:
        train(run, learner_of(run, name="net"), run.data((POINTS, LABELS), batch_size=8))
    with run_in(tmp_path / "run") as run:
        net = run.learner(nn.Sequential(nn.Linear(4, 3)), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        with pytest.raises(
            ts.CheckpointError,
            match=r"missing     0\.weight \[3, 4\]; there is weight\n.*\n *unexpected  weight",
        ):
            train(run, net, run.data((POINTS, LABELS), batch_size=8))


def test_logged_values_are_lines_and_nan_is_shown_as_nan(tmp_path):
    with run_in(tmp_path / "run", log_every=1, nonfinite="keep") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=20)
        for epoch in run.epochs(1):
            for batch in run.batches(data):
                net.update(lambda b: loss_of(net)(b) * float("nan"), batch)
            run.log(accuracy=torch.tensor(float("nan")), epoch_number=epoch)
    values = {}
    for line in read_metrics(tmp_path / "run/metrics.jsonl"):
        values |= line.values
    assert values["loss"] != values["loss"]
    assert values["accuracy"] != values["accuracy"]
    assert values["epoch_number"] == 0


def test_a_nan_among_finite_losses_is_not_averaged_away(tmp_path):
    with run_in(tmp_path / "run", log_every=4, nonfinite="skip") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=5)
        for _ in run.epochs(1):
            for batch in run.batches(data):
                factor = float("nan") if run.step == 2 else 1.0
                net.update(lambda b, factor=factor: loss_of(net)(b) * factor, batch)
    (line,) = read_metrics(tmp_path / "run/metrics.jsonl")
    assert line.values["loss"] != line.values["loss"]
    assert line.values["updates_skipped"] == 1
    assert net._parts.counters.updates == 3


def test_a_non_finite_loss_raises_and_leaves_the_weights_alone(tmp_path):
    with run_in(tmp_path / "run") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=20)
        before = net.weight.clone()
        assert run.epochs(1)
        batch = next(run.batches(data))
        with pytest.raises(ts.NonFiniteError, match="loss of 'linear' is nan at step 1"):
            net.update(lambda b: loss_of(net)(b) / 0 * 0, batch)
        assert torch.equal(before, net.weight)


def test_too_many_bad_updates_in_a_row_roll_back_to_the_last_healthy_checkpoint(tmp_path):
    saving = ts.Saving(every_steps=1, rollback_after=3, background=False)
    with run_in(tmp_path / "run", nonfinite="rollback", saving=saving) as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=2)
        kept = {}
        for _ in run.epochs(1):
            for batch in run.batches(data):
                bad = 4 <= run.step <= 6
                net.update(lambda b, bad=bad: loss_of(net)(b) * (float("inf") if bad else 1.0), batch)
                kept[run.step] = net.weight.detach().clone()
        assert net._parts.counters.skipped == 3
        assert torch.equal(kept[3], kept[6])
        assert not torch.equal(kept[6], kept[7])


def test_two_streams_read_together_and_a_loop_left_by_break_resume_where_they_were(tmp_path):
    def go(directory, stop_after=None):
        with run_in(directory, saving=ts.Saving(every_steps=1, background=False)) as run:
            net = learner_of(run)
            first = run.data((POINTS, LABELS), batch_size=4, shuffle=True)
            second = run.data((POINTS.flip(0), LABELS.flip(0)), batch_size=3, shuffle=True)
            for _ in run.epochs(2):
                for a, b in zip(run.batches(first), run.batches(second), strict=False):
                    net.update(loss_of(net), a)
                    net.update(loss_of(net), b)
                    if run.step == stop_after:
                        os.kill(os.getpid(), signal.SIGTERM)
                for batch in run.batches(first):
                    net.update(loss_of(net), batch)
                    if run.step == stop_after:
                        os.kill(os.getpid(), signal.SIGTERM)
                    if run.step % 8 == 7:
                        break
                run.log(done=run.step)
            return net.weight.clone(), (directory / "metrics.jsonl").read_text().count("\n")

    weights, lines = go(tmp_path / "whole")
    for step in (1, 3, 7, 8, 13):
        with pytest.raises(SystemExit):
            go(tmp_path / f"stopped-{step}", stop_after=step)
        again, lines_again = go(tmp_path / f"stopped-{step}")
        assert torch.equal(weights, again), step
        assert lines == lines_again, step


SCRIPT = """
    import os, signal, sys, torch, truestep as ts
    from torch import nn
    how = os.environ["HOW"]  # a word of the command line that differs would take the promise back
    with_signal = getattr(signal, how, None)
    run = ts.Run(sys.argv[1], exit_statuses={signal.SIGUSR1: 75})
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.ones(8, 2), batch_size=2)
    for epoch in run.epochs(3):
        for batch in run.batches(data):
            net.update(lambda b: net(b).squeeze(1) ** 2, batch)
            if run.step == 5 and with_signal:
                os.kill(os.getpid(), with_signal)
            if run.step == 5 and how == "raise":
                raise RuntimeError("of the user")
        if how.startswith("break"):
            break
    if how == "break, close":
        run.close()
"""


def script(tmp_path, how):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return warm.run(path, tmp_path / "run", cwd=tmp_path, env=os.environ | {"HOW": how})


@pytest.mark.parametrize(
    ("how", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGUSR1", 75), ("SIGHUP", 129)]
)
def test_a_signal_finishes_the_batch_saves_says_where_and_exits(tmp_path, how, status):
    stopped = script(tmp_path, how)
    assert stopped.returncode == status, stopped.stderr
    assert "stopped as asked after step 5; saved" in stopped.stderr
    assert str(tmp_path / "run" / "checkpoints") in stopped.stderr
    ended = script(tmp_path, "nothing")
    assert ended.returncode == 0, ended.stderr
    assert "(step 5, 1 epoch done); the rest is bit-identical" in ended.stderr


@pytest.mark.parametrize("with_epochs", [True, False])
def test_a_signal_after_the_last_moment_of_the_loop_is_not_swallowed(tmp_path, with_epochs):
    def go():
        with run_in(tmp_path / "run") as run:
            net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=10)
            save = run.session._saver.files.store.save

            def interrupted(*arguments, **options):
                save(*arguments, **options)
                os.kill(os.getpid(), signal.SIGTERM)

            run.session._saver.files.store.save = interrupted
            if with_epochs:
                train(run, net, data, epochs=1)
            else:
                for batch in run.batches(data):
                    net.update(loss_of(net), batch)
        raise AssertionError("the program went on")

    with pytest.raises(SystemExit) as stopped:
        go()
    assert stopped.value.code == 143
    with run_in(tmp_path / "run") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=10)
        train(run, net, data, epochs=1)
        assert run.step == 2


def test_a_signal_is_obeyed_although_nobody_can_be_told(tmp_path):
    gone, told = os.pipe()
    os.close(gone)
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    told_how = os.environ | {"HOW": "SIGTERM"}
    stopped = warm.Process(path, tmp_path / "run", stderr=told, cwd=tmp_path, env=told_how)
    os.close(told)
    assert stopped.wait() == 143


def test_checkpoints_may_lie_on_another_disk_behind_a_link(tmp_path):
    with run_in(tmp_path / "run") as run:
        train(run, learner_of(run), run.data((POINTS, LABELS), batch_size=10), epochs=1)
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "large")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "large")
    with run_in(tmp_path / "run") as run:
        train(run, learner_of(run), run.data((POINTS, LABELS), batch_size=10), epochs=2)
    assert run.step == 4


def test_metrics_that_can_not_be_cut_back_are_told_by_name(tmp_path):
    with run_in(tmp_path / "run") as run:
        train(run, learner_of(run), run.data((POINTS, LABELS), batch_size=10), epochs=1)
    (tmp_path / "run" / "metrics.jsonl").unlink()
    (tmp_path / "run" / "metrics.jsonl").mkdir()
    run = run_in(tmp_path / "run")
    net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=10)
    with pytest.raises(
        ts.RunDirectoryError, match=r"metrics\.jsonl could not be brought back .*Is a directory"
    ):
        train(run, net, data)
    run.close()


def test_an_exception_without_a_with_block_saves_and_goes_on_upwards_unchanged(tmp_path):
    failed = script(tmp_path, "raise")
    assert failed.returncode == 1
    assert "RuntimeError: of the user" in failed.stderr.splitlines()[-1]
    assert "RuntimeError after step 4; saved" in failed.stderr
    with warnings.catch_warnings(), CheckpointStore(tmp_path / "run" / "checkpoints") as store:
        newest = store.newest(incomplete=True)
        assert newest.summary.reason == "exception RuntimeError"
        assert not newest.summary.complete


def test_a_loop_left_by_break_is_saved_when_the_run_is_closed(tmp_path):
    left = script(tmp_path, "break, close")
    assert left.returncode == 0, left.stderr
    assert "(step 4, 0 epochs done)" in script(tmp_path, "nothing").stderr
    assert (tmp_path / "run" / "report.html").exists()


def test_a_loop_left_by_break_and_never_closed_goes_on_where_it_was_left(tmp_path):
    left = script(tmp_path, "break")
    assert left.returncode == 0, left.stderr
    again = script(tmp_path, "nothing")
    assert "(step 4, 0 epochs done); the rest is bit-identical" in again.stderr
    assert again.returncode == 0


def test_running_a_cell_again_takes_the_directory_over(tmp_path):
    first = run_in(tmp_path / "run")
    net = learner_of(first)
    net.evaluate(lambda batch: net(batch[0]).sum(1), [(POINTS, LABELS)])  # holds the directory from here on
    second = run_in(tmp_path / "run")
    train(second, learner_of(second), second.data((POINTS, LABELS), batch_size=8))
    assert second.step == 6
    second.close()


def test_state_that_is_no_json_or_tensor_is_refused_with_its_path(tmp_path):
    with run_in(tmp_path / "run") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=8)
        run.state["history"] = {"model": object()}
        with pytest.raises(ts.CheckpointError, match=r"run\.state\['history'\]\['model'\] is a .*object"):
            train(run, net, data)
        run.state.clear()


def test_every_automatic_choice_has_a_reason(tmp_path):
    with run_in(tmp_path / "run") as run:
        learner_of(run)
        points = run.data((POINTS, LABELS), batch_size=8)
        assert len(points) == 3
        assert {"device", "fused of linear", "loading of points"} <= {choice.name for choice in run.choices()}
        assert all(choice.reason for choice in run.choices())


def test_a_resume_that_is_refused_saves_nothing(tmp_path):
    with run_in(tmp_path / "run") as run:
        train(run, learner_of(run, name="net"), run.data((POINTS, LABELS), batch_size=8))
    before = sorted(entry.name for entry in (tmp_path / "run" / "checkpoints").iterdir())
    for _ in range(4):
        with pytest.raises(ts.CheckpointError), run_in(tmp_path / "run") as run:  # noqa: PT012
            other = run.learner(
                nn.Sequential(nn.Linear(4, 3)), lambda p: torch.optim.SGD(p, lr=0.1), name="net"
            )
            train(run, other, run.data((POINTS, LABELS), batch_size=8), epochs=3)
    now = sorted(
        entry.name for entry in (tmp_path / "run" / "checkpoints").iterdir() if "attempt" not in entry.name
    )
    assert before == now
    with run_in(tmp_path / "run") as run:
        train(run, learner_of(run, name="net"), run.data((POINTS, LABELS), batch_size=8), epochs=3)
        assert run.step == 9


def test_the_best_checkpoint_is_the_one_whose_weights_were_measured(tmp_path):
    saving = ts.Saving(every_steps=1, best="accuracy", keep_last=1, background=False)
    with run_in(tmp_path / "run", saving=saving) as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=5)
        for epoch in run.epochs(4):
            for batch in run.batches(data):
                net.update(loss_of(net), batch)
            run.log(accuracy=[0.5, 0.9, 0.1, 0.2][epoch])
    with CheckpointStore(tmp_path / "run" / "checkpoints") as store:
        best = [checkpoint for checkpoint in store.checkpoints() if checkpoint.metrics.get("accuracy") == 0.9]
        assert [checkpoint.step for checkpoint in best] == [8]


def go_on_after(tmp_path, interrupt, body):
    """Train in `tmp_path / "stopped"` until `interrupt`, go on, and return the weights beside the undisturbed ones."""
    saving = ts.Saving(every_steps=1, background=False)

    def go(name, disturb):
        with run_in(tmp_path / name, saving=saving) as run:
            torch.manual_seed(0)
            net = run.learner(nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.1))
            body(run, net, disturb)
            return net.weight.clone()

    whole = go("whole", lambda run: None)
    with pytest.raises(SystemExit):
        go("stopped", interrupt)
    return whole, go("stopped", lambda run: None)


def terminate_at(step):
    return lambda run: os.kill(os.getpid(), signal.SIGTERM) if run.step == step else None


@pytest.mark.sliced(4)
@pytest.mark.parametrize("step", [5, 6, 12, 13])
def test_a_loop_inside_another_resumes_at_the_outer_batch(tmp_path, step):
    def body(run, net, disturb):
        outer = run.data((POINTS, LABELS), batch_size=7, shuffle=True)
        inner = run.data((POINTS, LABELS), batch_size=5, shuffle=True)
        for _ in run.epochs(2):
            for batch in run.batches(inner):  # a pass of its own before
                net.update(loss_of(net), batch)
            for a in run.batches(outer):
                for b in run.batches(inner):
                    net.update(loss_of(net), b)
                net.update(loss_of(net), a)
                disturb(run)

    whole, again = go_on_after(tmp_path, terminate_at(step), body)
    assert torch.equal(whole, again)


@pytest.mark.sliced(3)
@pytest.mark.parametrize("step", [1, 2, 4])
def test_what_the_loop_draws_at_the_top_of_an_epoch_is_drawn_again(tmp_path, step):
    def body(run, net, disturb):
        data = run.data((POINTS, LABELS), batch_size=8)
        for _ in run.epochs(2):
            factor = float(torch.rand(())) + float(torch.rand(()))
            for batch in run.batches(data):
                noise = float(torch.rand(()))
                net.update(lambda b, f=factor, n=noise: loss_of(net)(b) * f * n, batch)
                disturb(run)

    whole, again = go_on_after(tmp_path, terminate_at(step), body)
    assert torch.equal(whole, again)


@pytest.mark.sliced(4)
@pytest.mark.parametrize("step", [1, 3, 4, 5, 7, 9, 11])
def test_what_was_logged_before_the_save_is_not_logged_again(tmp_path, step):
    def go(directory, stop_after=None):
        with run_in(directory, saving=ts.Saving(every_steps=1)) as run:
            net = learner_of(run, schedule=lambda o: ts.plateau(o, metric="error", factor=0.5, patience=0))
            data = run.data((POINTS, LABELS), batch_size=7, shuffle=True)
            for _ in run.epochs(2):
                run.log(top=run.step, error=1.0)
                for _ in range(2):
                    for batch in run.batches(data):
                        net.update(loss_of(net), batch)
                        if run.step == stop_after:
                            os.kill(os.getpid(), signal.SIGTERM)
                    run.log(error=1.0 + run.step)
            values = [(line.step, line.values) for line in read_metrics(directory / "metrics.jsonl")]
            return (
                net.weight.clone(),
                net.learning_rate,
                [(at, v["error"]) for at, v in values if "error" in v],
            )

    weight, rate, lines = go(tmp_path / "whole")
    with pytest.raises(SystemExit):
        go(tmp_path / "stopped", stop_after=step)
    again, rate_again, lines_again = go(tmp_path / "stopped")
    assert lines_again == lines
    assert rate_again == rate
    assert torch.equal(again, weight)


def test_an_exception_that_the_caller_catches_is_no_end_of_the_pass(tmp_path):
    def go(name, fail_at):
        with run_in(tmp_path / name, saving=ts.Saving(every_steps=1, background=False)) as run:
            net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=4)
            try:
                for _ in run.epochs(2):
                    for batch in run.batches(data):
                        net.update(loss_of(net), batch)
                        if run.step == fail_at:
                            raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            return net.weight.clone()

    whole = go("whole", None)
    go("failed", 3)
    assert torch.equal(whole, go("failed", None))


def test_a_source_inside_its_own_loop_is_refused(tmp_path):
    with run_in(tmp_path / "run") as run:
        data = run.data((POINTS, LABELS), batch_size=8)
        assert run.epochs(1)
        first = run.batches(data)
        next(first)
        with pytest.raises(ts.DataError, match="is being read already"):
            next(run.batches(data))


def test_an_exception_without_a_clip_is_saved_too(tmp_path):
    def fail(batch):
        raise KeyError("in the loss")

    with pytest.raises(KeyError) as raised, run_in(tmp_path / "run") as run:  # noqa: PT012
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=8)
        for _ in run.epochs(1):
            for batch in run.batches(data):
                net.update(fail if run.step == 3 else loss_of(net), batch)
    assert "saved" not in " ".join(raised.value.__notes__)  # nothing went wrong with that
    with CheckpointStore(tmp_path / "run" / "checkpoints") as store:
        assert store.newest(incomplete=True).summary.reason == "exception KeyError"


def test_functions_in_the_state_are_refused_not_dropped(tmp_path):
    with run_in(tmp_path / "run") as run:
        net, data = learner_of(run), run.data((POINTS, LABELS), batch_size=8)
        with pytest.raises(ts.CheckpointError, match=r"run\.state\['f'\]"):
            run.state["f"] = len
        run.state["f"] = [len]
        with pytest.raises(ts.CheckpointError, match=r"run\.state\['f'\]\[0\]"):
            train(run, net, data)
        run.state.clear()


def test_a_config_is_compared_by_what_it_means(tmp_path):
    config = {"limit": float("nan"), "kinds": {"b", "a"}, "mixed": {1, "all", None}, "path": tmp_path}
    run_in(tmp_path / "run", config=config).close()
    run_in(tmp_path / "run", config=config).close()
    with pytest.raises(ts.OptionError, match="no later process could recognise"):
        run_in(tmp_path / "other", config={"f": lambda: None})


def test_a_value_with_a_gradient_is_logged_without_a_word(tmp_path, recwarn):
    with run_in(tmp_path / "run") as run:
        run.log(loss=torch.ones((), requires_grad=True) * 2)
    assert [str(each.message) for each in recwarn] == []
    assert [line.values["loss"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [2]


def test_must_resume_needs_a_checkpoint(tmp_path):
    run_in(tmp_path / "run").close()
    run = run_in(tmp_path / "run", resume="must")
    learner_of(run)
    with pytest.raises(ts.RunDirectoryError, match="before its first checkpoint"):
        run.epochs(1)
    run.close()


def weights_of(run_directory, checkpoint):
    net = nn.Linear(4, 3)
    ts.load_weights(net, run_directory, checkpoint=checkpoint)
    return net.weight.detach().clone()


def measured_run(directory, accuracies, **saving):
    """Train an epoch for each accuracy, log it, and return the weights that it was logged of."""
    run = run_in(directory, saving=ts.Saving(every_steps=1, keep_last=20, **saving))
    net, data, weights = learner_of(run), run.data((POINTS, LABELS), batch_size=8), []
    for epoch in run.epochs(len(accuracies)):
        for batch in run.batches(data):
            net.update(loss_of(net), batch)
        weights.append(net.weight.detach().clone())
        run.log(accuracy=accuracies[epoch])
    return weights


def test_a_checkpoint_knows_what_was_measured_of_its_weights_and_of_no_others(tmp_path):
    measured_run(tmp_path / "run", [0.25, 0.5], epoch_seconds=1e9)
    found = {
        (item.summary.step, item.summary.reason): item.metrics.get("accuracy")
        for item in checkpoint_overview(tmp_path / "run")
    }
    # saved behind the pass: what was due at its last batch waits for what follows
    assert [found.pop((step, "periodic")) for step in (3, 6)] == [0.25, 0.5]
    assert set(found.values()) == {None}


def test_weights_of_a_step_and_of_the_best_are_one_line_each(tmp_path):
    weights = measured_run(tmp_path / "run", [0.5, 0.9, 0.7], epoch_seconds=0.0)
    assert weights_of(tmp_path / "run", 3).equal(weights[0])
    assert weights_of(tmp_path / "run", "highest accuracy").equal(weights[1])
    assert weights_of(tmp_path / "run", "lowest accuracy").equal(weights[0])
    with pytest.raises(ts.CheckpointError, match=r"with 'acuracy' logged. Did you mean 'accuracy'"):
        weights_of(tmp_path / "run", "lowest acuracy")
    with pytest.raises(ts.CheckpointError, match="is no run's directory"):
        ts.load_weights(nn.Linear(4, 3), nn.Linear(4, 3).state_dict(), checkpoint="highest accuracy")


def said_by(capsys, directory, make_learner, data, epochs):
    """Train with messages on, and return what the run said."""
    run = ts.Run(directory, saving=ts.Saving(every_steps=1))
    net = make_learner(run)
    source = run.data(data, batch_size=8)
    train(run, net, source, epochs)
    return capsys.readouterr().err


def adam(learning_rate, decay):
    return lambda run: run.learner(
        nn.Linear(4, 3), lambda p: torch.optim.AdamW(p, lr=learning_rate, weight_decay=decay), name="net"
    )


def test_options_that_the_code_gives_otherwise_than_the_checkpoint_are_refused_at_a_resume(tmp_path, capsys):
    data = (POINTS, LABELS)
    assert "in the checkpoint" not in said_by(capsys, tmp_path, adam(0.1, 0.5), data, 1)
    assert "in the checkpoint" not in said_by(capsys, tmp_path, adam(0.1, 0.5), data, 2)
    with pytest.raises(
        ts.OptionError,
        match=r"net: lr=0\.2 in the code, 0\.1 in the checkpoint; weight_decay=0\.25 in the code, 0\.5 in the",
    ):
        said_by(capsys, tmp_path, adam(0.2, 0.25), data, 3)


def test_a_schedule_that_moves_the_learning_rate_is_no_difference(tmp_path, capsys):
    def one_cycle(run):
        return run.learner(
            nn.Linear(4, 3),
            lambda p: torch.optim.AdamW(p, lr=0.1),
            schedule=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=9),
        )

    said_by(capsys, tmp_path, one_cycle, (POINTS, LABELS), 1)
    said = said_by(capsys, tmp_path, one_cycle, (POINTS, LABELS), 3)
    assert "bit-identical" in said
    assert "in the checkpoint" not in said


class Unrepeatable(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return POINTS[index] + os.urandom(1)[0], LABELS[index]


def test_data_that_weakens_the_promise_is_named_at_the_start_and_at_a_resume(tmp_path, capsys):
    said = said_by(capsys, tmp_path, learner_of, Unrepeatable(), 1)
    assert "sample randomness of source: not repeatable; sample" in said
    said = said_by(capsys, tmp_path, learner_of, Unrepeatable(), 2)
    assert (
        "the rest is no more than its data can promise (sample randomness of source: not repeatable)" in said
    )
    assert "bit-identical" not in said
