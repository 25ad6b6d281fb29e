# SPDX-License-Identifier: Apache-2.0
"""`truestep checkpoints` says what there is and what is wrong with it, and its exit code says it too."""

import json
import math
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from truestep.checkpoints import CheckpointStore, Retention
from truestep.cli.checkpoints import app
from truestep.core.errors import CheckpointError, OptionError, RunDirectoryError
from truestep.mirror.state_sources import load_weights


def state(value: float) -> dict:
    net = {"weight": torch.full((2, 3), value), "bias": torch.zeros(3)}
    return {"learners": {"net": {"modules": net, "optimizers": [{"lr": value, "betas": (0.9, 0.99)}]}}}


@pytest.fixture
def run(tmp_path):
    with CheckpointStore(tmp_path / "run" / "checkpoints", retention=Retention(last=5)) as store:
        store.save(10, state(1.0), metrics={"accuracy": 0.5})
        store.save(20, state(2.0), metrics={"accuracy": math.nan}, healthy=False, reason="signal")
        store.save(30, state(3.0), metrics={"accuracy": 0.75})
    return tmp_path / "run"


def call(*arguments, status=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.stdout


def damage(run, name="000003-step-30"):
    file = run / "checkpoints" / name / "learners.net.modules-r0000.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")


def test_list_shows_the_newest_first(run):
    lines = call("list", run).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["000003-step-30", "000002-step-20", "000001-step-10"]
    assert "signal" in lines[2]
    assert "unhealthy" in lines[2]
    assert "accuracy=nan" in lines[2]
    assert call("list", run / "checkpoints") == call("list", run)


def test_list_fits_80_columns_and_shows_what_checkpoints_are_chosen_by(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    metrics = {"loss": 0.123456, "accuracy": 0.987654, "memory_bytes": 1e9, "net/learning_rate": 0.1}
    with CheckpointStore(tmp_path / "run" / "checkpoints") as store:
        store.save(123456, state(1.0), metrics=metrics, reason="signal SIGTERM")
    out = call("list", tmp_path / "run")
    assert max(map(len, out.splitlines())) <= 80
    assert "loss=0.1235" in out
    assert "accuracy=0.9877" in out
    assert "memory" not in out
    assert "learning_rate" not in out
    assert json.loads(call("list", tmp_path / "run", "--json"))["checkpoints"][0]["metrics"] == metrics


def test_show_takes_the_best_and_shortens_long_lists(tmp_path):
    with CheckpointStore(tmp_path / "run" / "checkpoints", retention=Retention(last=5)) as store:
        for step, loss in ((10, 0.5), (20, 0.25), (30, 0.75)):
            store.save(step, {"stream": list(range(600)), "few": [1, 2]}, metrics={"loss": loss})
    out = call("show", tmp_path / "run", "lowest loss")
    assert out.startswith("000002-step-20  ")
    assert "  stream  600 values\n" in out
    assert "  few/1  2\n" in out
    assert call("show", tmp_path / "run", "highest loss").startswith("000003-step-30")
    with pytest.raises(CheckpointError, match=r"no checkpoint with 'los' logged\. Did you mean 'loss'"):
        call("show", tmp_path / "run", "lowest los")


def test_list_as_json(run):
    document = json.loads(call("list", run, "--json"))
    assert document["schema_version"] == 1
    assert [entry["step"] for entry in document["checkpoints"]] == [30, 20, 10]
    assert document["checkpoints"][1]["metrics"] == {"accuracy": "NaN"}
    assert document["checkpoints"][0]["size_bytes"] > 36


def test_list_of_an_empty_run_and_of_none(tmp_path):
    wanted = (
        f"no checkpoints in {tmp_path}. Write the folder of a run: truestep checkpoints list runs/digits\n"
    )
    assert call("list", tmp_path, status=1) == wanted
    (tmp_path / "runs" / "new").mkdir(parents=True)
    (tmp_path / "runs" / "new" / "metrics.jsonl").touch()
    assert call("list", tmp_path / "runs" / "new").endswith("The run has saved none yet.\n")
    assert call("list", tmp_path / "runs").endswith(
        f"`truestep runs {tmp_path / 'runs'}` lists the runs in it.\n"
    )
    with pytest.raises(CheckpointError, match="does not exist"):
        call("list", tmp_path / "none")


def test_verify_names_the_damaged_file_and_exits_1(run):
    assert call("verify", run).count("sound") == 3
    damage(run)
    out = call("verify", run, status=1).splitlines()
    assert out[0].startswith("000003-step-30  DAMAGED  learners.net.modules-r0000.safetensors: its content")
    assert out[1:] == ["000002-step-20  sound", "000001-step-10  sound"]
    document = json.loads(call("verify", run, "--json", status=1))
    assert [entry["sound"] for entry in document["checkpoints"]] == [False, True, True]


def test_show_lists_every_value_of_the_newest_or_the_one_asked_for(run):
    out = call("show", run)
    assert out.startswith("000003-step-30  periodic, whole, ")
    assert "  learners/net/modules/weight  float32 [2, 3]\n" in out
    assert "  learners/net/optimizers/0/lr  3.0\n" in out
    for name in ("20", "000002-step-20", "2"):
        assert "optimizers/0/lr  2.0" in call("show", run, name)
    assert json.loads(call("show", run, "10", "--json"))["contents"]["learners/net/optimizers/0/lr"] == "1.0"
    with pytest.raises(CheckpointError, match=r"no checkpoint '40'. .*There are: 000001-step-10"):
        call("show", run, "40")


def test_diff_says_what_changed_and_exits_1(run):
    assert (
        call("diff", run, "10", "10") == "0 of 36 bytes differ: 2 tensors and every other value are equal\n"
    )
    assert call("diff", run, "10", "30", status=1).splitlines() == [
        "changed   learners/net/modules/weight  6 of 6 elements, largest difference 2",
        "changed   learners/net/optimizers/0/lr  1.0 -> 3.0",
        "12 of 36 bytes differ: 1 of 2 tensors, and 1 other value",
    ]
    document = json.loads(call("diff", run, "10", "30", "--json", status=1))
    assert [change["kind"] for change in document["changes"]] == ["changed", "changed"]
    assert document["changes"][0]["largest_difference"] == 2.0
    assert (document["equal"], document["differing_bytes"], document["num_bytes"]) == (False, 12, 36)


def test_diff_of_two_runs_compares_the_newest_but_for_what_the_clock_gave(run, tmp_path):
    clock = {"mark": [tmp_path.name, 1], "elapsed_seconds": 1.5}
    for name, value, seconds in [("same", 3.0, 1.5), ("same too", 3.0, 2.5), ("other", 4.0, 1.5)]:
        with CheckpointStore(tmp_path / name / "checkpoints") as store:
            store.save(30, state(value) | {"logbook": clock | {"elapsed_seconds": seconds}})
    same = call("diff", tmp_path / "same", tmp_path / "same too")
    assert same == "0 of 36 bytes differ: 2 tensors and every other value are equal\n"
    assert "1 of 2 tensors" in call("diff", tmp_path / "same", tmp_path / "other", status=1)
    document = json.loads(call("diff", tmp_path / "same", tmp_path / "same too", "--json"))
    assert document["first"].endswith("000001-step-30")
    assert document["equal"]
    with pytest.raises(CheckpointError, match="40 does not exist"):
        call("diff", run, "40")


def test_diff_of_a_run_that_was_resumed_with_one_that_was_not_compares_what_a_resume_promises(tmp_path):
    def environment(went_on, **other):
        salted = f"***{'0' if went_on else '1'}123456789abcdef"
        return {
            "went_on": went_on,
            "arguments": ["--out", str(went_on)],
            "torch": "2.13",
            "layers": f"key='{salted}'",
        } | other

    states = {
        "straight": environment(False),
        "resumed": environment(True),
        "other": environment(True, torch="2.14"),
    }
    for name, facts in states.items():
        with CheckpointStore(tmp_path / name / "checkpoints") as store:
            store.save(30, state(3.0) | {"environment": facts})
    assert call("diff", tmp_path / "straight", tmp_path / "resumed").startswith(
        "0 of 36 bytes differ: 2 tensors and every"
    )
    assert "environment/torch" in call("diff", tmp_path / "straight", tmp_path / "other", status=1)


def test_diff_shows_the_models_first_and_of_layers_what_differs(tmp_path):
    for name, rate, width in (("a", 0.1, 3), ("b", 0.2, 4)):
        layers = json.dumps({"": ["Net", {}], "0": ["Linear", {"in": "6", "out": str(width)}]})
        state = {
            "optimizers": {str(number): torch.full((2,), rate) for number in range(20)},
            "settings": {"lr": rate, "layers": layers},
            "modules": {"weight": torch.full((width,), rate)},
        }
        with CheckpointStore(tmp_path / name / "checkpoints") as store:
            store.save(1, {"learners": {"net": state}})
    lines = call("diff", tmp_path / "a", tmp_path / "b", status=1).splitlines()
    assert lines[:3] == [
        "reshaped  learners/net/modules/weight  float32 [3] -> float32 [4]",
        "changed   learners/net/settings/lr  0.1 -> 0.2",
        "changed   learners/net/settings/layers  0/1/out 3 -> 4",
    ]
    assert lines[-2] == "... and 4 more; --json has all"


def test_diff_of_much_that_differs_shows_the_first_and_counts_the_rest(tmp_path):
    for name, value in [("a", 0.0), ("b", math.nan)]:
        with CheckpointStore(tmp_path / name / "checkpoints") as store:
            store.save(1, {f"{number:02}": torch.full((2,), value) for number in range(40)})
    lines = call("diff", tmp_path / "a", tmp_path / "b", status=1).splitlines()
    assert lines[0].startswith("changed   00  2 of 2 elements")
    assert lines[-2:] == ["... and 24 more; --json has all", "160 of 320 bytes differ: 40 of 40 tensors"]
    assert json.loads(call("diff", tmp_path / "a", tmp_path / "b", "--json", status=1))["num_tensors"] == 40


def test_export_writes_a_plain_file(run, tmp_path):
    assert call("export", run, tmp_path / "w.pt", "--which", "10") == f"{tmp_path / 'w.pt'}\n"
    layer = torch.nn.Linear(2, 3)
    layer.weight = torch.nn.Parameter(torch.zeros(2, 3))
    load_weights(layer, tmp_path / "w.pt")
    assert layer.weight.mean() == 1.0


def test_prune_removes_what_is_not_kept(run):
    arguments = (
        "prune",
        run,
        "--last",
        "1",
        "--best",
        "1",
        "--best-metric",
        "accuracy",
        "--best-mode",
        "min",
    )
    assert call(*arguments, "--dry-run") == "would remove 000002-step-20\n"
    assert len(list((run / "checkpoints").iterdir())) == 4
    assert call(*arguments) == "removed 000002-step-20\n"
    assert [entry["step"] for entry in json.loads(call("list", run, "--json"))["checkpoints"]] == [30, 10]


def test_prune_asks_which_way_a_loss_is_better(run):
    with pytest.raises(OptionError, match="does not say which way is better"):
        call("prune", run, "--best", 1, "--best-metric", "val_loss")


def test_prune_refuses_a_metric_that_no_checkpoint_has(run):
    with pytest.raises(
        CheckpointError, match=r"no checkpoint with 'acuracy' logged\. Did you mean 'accuracy'"
    ):
        call("prune", run, "--last", 1, "--best", 2, "--best-metric", "acuracy")
    assert len(call("list", run).splitlines()) == 4


def test_what_is_no_run_is_told_and_left_as_it_is(tmp_path, capsys):
    assert call("verify", tmp_path, status=1) == ""
    assert call("prune", tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "weights.pt").write_bytes(b"x")
    for command in ("list", "verify", "show", "prune"):
        with pytest.raises(CheckpointError, match="is a file, not a run's directory"):
            call(command, tmp_path / "weights.pt")


def test_prune_removes_nothing_while_the_run_goes_on(run):
    with CheckpointStore(run / "checkpoints"), pytest.raises(RunDirectoryError, match="is in use by process"):
        call("prune", run)


def test_prune_counts_no_damaged_one_and_removes_none(run):
    damage(run, "000003-step-30")
    assert call("prune", run, "--last", "1") == ""  # 20 is the newest sound one, 10 the newest healthy one
    damage(run, "000002-step-20")
    damage(run, "000001-step-10")
    assert call("prune", run, "--last", "1") == ""
    assert len(call("list", run).splitlines()) == 4


def test_a_damaged_newest_is_named_on_stderr(run):
    damage(run)
    result = CliRunner().invoke(app, ["show", str(run)])
    assert result.stdout.startswith("000002-step-20")
    assert "000003-step-30 was passed over: learners.net.modules" in result.stderr


def test_list_needs_no_torch(run):
    code = (
        "import sys; sys.modules['torch'] = None; from truestep.cli.checkpoints import app\n"
        f"app(['verify', {str(run)!r}])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.count("sound") == 3


def test_a_comparison_of_nothing_is_answered_with_one_example(capsys, monkeypatch):
    from truestep.cli.main import main

    monkeypatch.setattr(sys, "argv", ["truestep", "checkpoints", "diff"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # put back afterwards
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "truestep checkpoints diff: Missing argument 'run': the run's directory, its checkpoints, "
    )
    assert said.count("For example: truestep checkpoints diff runs/a runs/b\n") == 1
    assert "OTHER|FIRST" not in said
