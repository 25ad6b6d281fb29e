# SPDX-License-Identifier: Apache-2.0
"""The same file under every launcher, with no line for it: each process finds its place, and all make one update together."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.ranks import environment, free_port

PROGRAM = Path(__file__).parents[1] / "programs" / "place.py"
PAGE = Path(__file__).parents[3] / "docs" / "clusters.md"
LOSS, WEIGHT = (
    "7.0",
    "[0.7, 0.6]",
)  # of the rows 0 to 7 with weights of one, and a step of 0.1 down their mean
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
pytestmark = pytest.mark.slow


def run(command, folder, **more):
    """Run a command in a folder where `python` is this one; return the places that it prints, in order of ranks."""
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    (folder / "train.py").write_text(PROGRAM.read_text())
    given = {
        name: value for name, value in environment(**more).items() if name in more or name not in LAUNCHER
    }
    given["PATH"] = f"{python.parent}{os.pathsep}{given['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=given, check=False, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(re.findall(r"place (\d+) (\d+) (\d+) (.*)", done.stdout))


def expected(size, *, on_each=None, wrapper=""):
    on_each = on_each or size
    return [
        (str(rank), str(rank % on_each), str(size), f"{LOSS} {wrapper}{WEIGHT} none left")
        for rank in range(size)
    ]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("module", ["torch.distributed.run", "torch.distributed.launch"])
def test_torchs_own_launchers(tmp_path, module):
    words = ("-m", module, "--nproc-per-node=2", f"--master-port={free_port()}", "train.py")
    assert run([sys.executable, *words], tmp_path) == expected(2)


def test_the_shell_loop_of_the_page(tmp_path):
    (loop,) = [
        line.removeprefix("$ ")
        for block in blocks("console")
        for line in block.splitlines()
        if "do RANK" in line
    ]
    assert run(["bash", "-c", loop], tmp_path, MASTER_PORT=free_port()) == expected(2)


TASKS = """#!/bin/sh
# stands for srun, or mpirun: starts the tasks with the variables of each, on so many machines
task=0
while [ $task -lt $TASKS ]; do
    export {rank}=$task {size}=$TASKS {local_rank}=$((task % ON_EACH)) {local_size}=$ON_EACH
    "$@" & pids="$pids $!"
    task=$((task + 1))
done
for pid in $pids; do wait $pid || exit 1; done
"""
SLURM = {
    "rank": "SLURM_PROCID",
    "size": "SLURM_NTASKS",
    "local_rank": "SLURM_LOCALID",
    "local_size": "SLURM_NTASKS_PER_NODE",
}
OPENMPI = {
    "rank": "OMPI_COMM_WORLD_RANK",
    "size": "OMPI_COMM_WORLD_SIZE",
    "local_rank": "OMPI_COMM_WORLD_LOCAL_RANK",
    "local_size": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def starter(folder, name, words):
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(TASKS.format(**words))
    path.chmod(0o755)
    return path


def test_the_batch_file_of_the_page(tmp_path):
    """SLURM hands it the numbers of its `#SBATCH` lines; here two machines have two tasks each, and both are this one."""
    (batch,) = [block for block in blocks("bash") if "#SBATCH" in block]
    asked = dict(re.findall(r"#SBATCH --(\S+)=(\S+)", batch))
    assert asked.keys() == {"nodes", "ntasks-per-node", "gpus-per-node", "signal"}
    assert asked["ntasks-per-node"] == asked["gpus-per-node"]
    starter(tmp_path, "srun", SLURM)
    (tmp_path / "job.sh").write_text(batch)
    job = {"SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0, "SLURM_STEP_NODELIST": "localhost,other"}
    assert run(["bash", "job.sh"], tmp_path, TASKS=4, ON_EACH=2, **job) == expected(4, on_each=2)


def test_open_mpis_variables(tmp_path):
    command = starter(tmp_path, "mpirun", OPENMPI)
    more = {"TASKS": 2, "ON_EACH": 2, "MASTER_PORT": free_port()}
    assert run([str(command), "python", "train.py"], tmp_path, **more) == expected(2)


@pytest.mark.parametrize("method", ["tcp", "file", "env"])
def test_a_group_of_the_files_own_is_used_and_left_to_it(tmp_path, method):
    port = free_port()
    address = {"tcp": f"tcp://127.0.0.1:{port}", "file": f"file://{tmp_path}/meeting", "env": "env://"}[
        method
    ]
    loop = f"for rank in 0 1; do RANK=$rank WORLD_SIZE=2 python train.py {address} & done; wait"
    more = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert run(["bash", "-c", loop], tmp_path, **more) == expected(2, wrapper="left out ")
