# SPDX-License-Identifier: Apache-2.0
"""The verdicts: each one way in which an environment can be wrong for training, and what mends it.

A verdict is a function from the machine's facts to pass, warn, fail, or skip where it does not apply.
"Fail" is what stops or falsifies training, "warn" what may do so later.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from truestep.machine.environment import packages
from truestep.machine.environment.facts import Machine
from truestep.machine.environment.libraries import SharedLibrary

# Docker gives a container 64 MiB, through which data workers pass every batch.
MIN_SHARED_BYTES = 256 * 2**20
GOOD_SHARED_BYTES = 2**30

Judgement = tuple[str, str] | tuple[str, str, str]  # status, what it says, what mends it


@dataclass(frozen=True, kw_only=True)
class EnvironmentVerdict:
    """What was judged, and how: "pass", "warn", "fail", or "skip" where it does not apply."""

    name: str
    status: str
    says: str
    fix: str | None = None


def torch_loads(machine: Machine) -> Judgement:
    """Torch is installed and its libraries load."""
    torch = machine.torch
    if torch is None:
        return "skip", "torch is not installed", "pip install 'truestep[torch]'"
    if not torch.loads:
        says = f"torch in {torch.folder} does not load: {torch.error}"
        return "fail", says, "reinstall torch in a fresh environment"
    return "pass", f"torch {torch.version} loads"


def torch_complete(machine: Machine) -> Judgement:
    """Torch is there once, with what it requires, and nothing in this folder takes its name."""
    installed = [package for package in machine.packages if package.name == "torch"]
    if machine.torch_shadowed_by:
        return "fail", f"scripts started in this folder import its {machine.torch_shadowed_by}", "rename it"
    if len({(package.version, package.location) for package in installed}) > 1:
        where = ", ".join(f"{package.version} in {package.location}" for package in installed)
        says = f"torch is installed more than once: {where}"
        return "fail", says, "uninstall all of them, then install one"
    if not installed:
        return "skip", "torch is not installed as a package"
    if machine.torch_lacks:
        missing = " ".join(machine.torch_lacks)
        return "fail", f"torch needs packages that are not installed: {missing}", f"pip install {missing}"
    return "pass", "torch is installed once, with all it needs"


def driver_new_enough(machine: Machine) -> Judgement:
    """The driver supports the CUDA that torch was built for (within a major version, any minor does)."""
    cuda = machine.torch.cuda if machine.torch else None
    built, supported = _version_numbers(cuda), _version_numbers(machine.gpus.cuda_version)
    if not built or not supported:
        return "skip", "no CUDA build of torch with a driver"
    says = f"the driver supports CUDA {machine.gpus.cuda_version}, torch was built for {cuda}"
    if supported[0] < built[0]:
        return "fail", says, f"update the driver, or install a torch for CUDA {machine.gpus.cuda_version}"
    if supported < built:
        return "warn", f"{says}: kernels compiled at run time (PTX) may fail", "update the driver"
    return "pass", says


def driver_runs(machine: Machine) -> Judgement:
    """Cards on the bus are visible to NVML."""
    nvidia = [card for card in machine.cards_on_bus if card.vendor == "NVIDIA"]
    lost = [f"card {card.index}: {card.error}" for card in machine.gpus.gpus if card.error]
    if lost:
        return "fail", "; ".join(lost), "look for Xid in the kernel's log (dmesg), then restart the machine"
    if nvidia and not machine.gpus.gpus:
        says = f"{len(nvidia)} NVIDIA card(s) on the bus, but {machine.gpus.error}"
        return "fail", says, "install the driver; for a container: docker run --gpus all"
    if not machine.gpus.gpus:
        return "skip", "no NVIDIA card"
    return "pass", f"driver {machine.gpus.driver_version} shows {len(machine.gpus.gpus)} card(s)"


def capability_built(machine: Machine) -> Judgement:
    """Torch has kernels for every card."""
    torch = machine.torch
    cards = [(card.compute_capability, card.name) for card in machine.gpus.gpus if card.compute_capability]
    if not torch or not torch.architectures or not cards:
        return "skip", "no CUDA build of torch with a card"
    for capability, name in cards:
        if not cuda_architecture_runs_on(capability, torch.architectures):
            says = f"{name} has capability {capability}; torch was built for {' '.join(torch.architectures)}"
            return "fail", says, "install a torch that was built for this card"
    return "pass", f"torch has kernels for {', '.join(sorted({capability for capability, _ in cards}))}"


def cuda_architecture_runs_on(capability: str, architectures: tuple[str, ...]) -> bool:
    """Return whether a build runs on a card: its own major version, or PTX of an older one."""
    card = _version_numbers(capability)
    for architecture in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
        if match is None:
            continue
        built = (int(match[2]), int(match[3]))
        is_exact = match[4] == "a"  # this very capability only
        is_family = match[1] == "sm" or match[4] == "f"
        if built == card or (built <= card and not is_exact and (built[0] == card[0] or not is_family)):
            return True
    return False


def cuda_usable(machine: Machine) -> Judgement:
    """A CUDA build of torch sees a card."""
    torch = machine.torch
    if torch is None or not torch.cuda or torch.cuda_available is None:
        return "skip", "no CUDA build of torch was asked"
    if torch.cuda_available:
        return "pass", "torch sees a CUDA device"
    hidden = machine.variables.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and machine.gpus.gpus:
        says = f"torch sees no device: CUDA_VISIBLE_DEVICES is {hidden!r}"
        return "fail", says, "unset it, or name a card that is there"
    if machine.gpus.gpus:
        says = f"torch sees no device: {torch.cuda_error or 'CUDA gives no reason'}"
        return "fail", says, "see the other verdicts"
    return "warn", f"a CUDA build of torch, and no card: {machine.gpus.error}"


def one_cudnn(machine: Machine) -> Judgement:
    """One cuDNN is on the loader's way."""
    if not machine.torch or not (machine.torch.cuda or machine.torch.cudnn_version):
        return "skip", "torch was built without cuDNN"
    first = [library for library in machine.cudnn if library.found_by != "loader cache"]
    if len({library.version for library in first}) > 1:
        says = f"several cuDNNs can be loaded: {_libraries_text(first)}"
        return "fail", says, "keep torch's own; take the others off LD_LIBRARY_PATH"
    if len({library.version for library in machine.cudnn}) > 1:
        says = f"a second cuDNN stands in the system's folders: {_libraries_text(machine.cudnn)}"
        return "warn", says, "torch's own is found first"
    return "pass", f"one cuDNN: {_libraries_text(machine.cudnn) or machine.torch.cudnn_version}"


def _libraries_text(found: Iterable[SharedLibrary]) -> str:
    return "; ".join(f"{library.version} at {library.path} ({library.found_by})" for library in found)


def cuda_home(machine: Machine) -> Judgement:
    """The toolkit that torch takes to compile extensions is one."""
    home, torch = machine.toolkit.home(), machine.torch
    if home is None:
        return "skip", "no CUDA toolkit"
    if home.wrong is None:
        return "pass", f"CUDA_HOME is {home.path}, from {home.source}"
    toolkit = next((nvcc.toolkit for nvcc in machine.toolkit.nvccs if nvcc.toolkit), None)
    fix = "set CUDA_HOME to a folder with bin, include and lib64"
    fix = f"export CUDA_HOME={toolkit}" if toolkit else fix
    says = f"{home.path} (from {home.source}) for CUDA_HOME, but {home.wrong}"
    if torch and torch.cuda:
        return "fail", f"torch takes {says}", fix
    return "warn", f"a CUDA build of torch would take {says}", fix  # a CPU build compiles no CUDA


def nvcc_fits(machine: Machine) -> Judgement:
    """The compiler that torch runs has the major version that torch was built for."""
    compiler, torch = machine.toolkit.compiler(), machine.torch
    if compiler is None or compiler.version is None or torch is None or not torch.cuda:
        return "skip", "no nvcc with a CUDA build of torch"
    says = f"nvcc {compiler.version} ({compiler.path}), torch for CUDA {torch.cuda}"
    ours, theirs = _version_numbers(compiler.version), _version_numbers(torch.cuda)
    if ours[:1] != theirs[:1]:
        return "fail", f"{says}: extensions will not compile", f"install the toolkit of CUDA {torch.cuda}"
    if ours[:2] != theirs[:2]:
        return "warn", f"{says}: torch warns when it compiles extensions"
    return "pass", says


# torchvision 0.28 was built for torch 2.13: the minor versions run in parallel since torch 2.0
_VISION_OFFSET = 15


def companions_fit(machine: Machine) -> Judgement:
    """Torchvision and torchaudio were built for this torch."""
    torch = _package_version(machine, "torch")
    both = {name: _package_version(machine, name) for name in ("torchvision", "torchaudio")}
    present = {name: version for name, version in both.items() if version}
    if not torch or not present:
        return "skip", "no torchvision or torchaudio beside torch"
    wrong = [
        f"{name} {version} was built for torch {wanted}"
        for name, version in present.items()
        if (wanted := _other_torch_it_was_built_for(machine, name, version, torch))
    ]
    if wrong:
        return "fail", f"{'; '.join(wrong)}; here is {torch}", "install them together, from the same index"
    return "pass", f"{', '.join(f'{name} {version}' for name, version in present.items())} fit torch {torch}"


def _other_torch_it_was_built_for(machine: Machine, name: str, version: str, torch: str) -> str | None:
    """Return the torch that a companion was built for, where it is another one."""
    package = next(package for package in machine.packages if package.name == name)
    pinned = re.match(r"==\s*([\w.+]+)", packages.package_requirements(package).get("torch", ""))
    major_minor = _version_numbers(version)[:2]
    if pinned:
        wanted = pinned[1]
    elif name == "torchvision" and major_minor[0] == 0:
        wanted = f"2.{major_minor[1] - _VISION_OFFSET}"
    else:
        wanted = ".".join(map(str, major_minor))
    release, _, build = torch.partition("+")
    own_build = version.partition("+")[2]
    if own_build and build and own_build != build:
        return f"{wanted}+{own_build}"
    places = len(_version_numbers(wanted.partition("+")[0]))
    same = _version_numbers(release)[:places] == _version_numbers(wanted.partition("+")[0])
    return None if same else wanted


def no_pynvml_shim(machine: Machine) -> Judgement:
    """The deprecated `pynvml` package is not installed: it warns at `import torch` or hides nvidia-ml-py."""
    version = _package_version(machine, "pynvml")
    if version:
        says = f"the deprecated package pynvml {version} is installed; `import torch` warns about it"
        return "fail", says, "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py"
    return "pass", "no pynvml shim"


def build_fits_card(machine: Machine) -> Judgement:
    """A torch for the CPU does not stand beside a card."""
    vendors = {card.vendor for card in machine.cards_on_bus} - {"Intel"}
    vendors |= {"NVIDIA"} if machine.gpus.gpus else set()
    if machine.torch is None or not vendors:
        return "skip", "no card, or no torch"
    if machine.torch.cuda or machine.torch.hip:
        return "pass", f"torch was built for {'CUDA ' + machine.torch.cuda if machine.torch.cuda else 'ROCm'}"
    says = f"torch {machine.torch.version} is for the CPU, beside a card of {', '.join(sorted(vendors))}"
    return "fail", says, "install a torch for the card (https://pytorch.org/get-started)"


def shared_memory(machine: Machine) -> Judgement:
    """/dev/shm has room for the batches of data workers."""
    total = machine.memory.shared_total_bytes
    if total is None:
        return "skip", "no /dev/shm"
    says = f"/dev/shm has {total / 2**20:.0f} MiB"
    fix = "start the container with --shm-size=8g or --ipc=host"
    if total < MIN_SHARED_BYTES:
        return "fail", f"{says}: data workers die of a bus error when their batches fill it", fix
    if total < GOOD_SHARED_BYTES:
        return "warn", f"{says}: large batches with many workers may fill it", fix
    return "pass", says


def threads_fit(machine: Machine) -> Judgement:
    """Torch starts no more threads than the container may run."""
    threads = machine.torch.num_threads if machine.torch else None
    if threads is None:
        return "skip", "no torch that loads"
    usable = machine.processor.usable
    says = f"torch starts {threads} thread(s), {usable} CPU(s) may be used"
    if threads > usable:
        return "fail", f"{says}: they will be throttled", f"export OMP_NUM_THREADS={usable}"
    return "pass", says


def same_environment(machine: Machine) -> Judgement:
    """The environment that the shell calls active is the one reported on."""
    active = machine.python.active_environment
    if not active or Path(active).resolve() == Path(machine.python.prefix).resolve():
        return "pass", f"this is the environment in use: {machine.python.prefix}"
    says = f"the shell's active environment is {active}, this report is on {machine.python.prefix}"
    return "warn", says, "install truestep in the active one"


def tensorboard_starts(machine: Machine) -> Judgement:
    """TensorBoard before 2.21 needs pkg_resources, which setuptools 82 dropped."""
    board, tools = _package_version(machine, "tensorboard"), _package_version(machine, "setuptools")
    if not board:
        return "skip", "no TensorBoard"
    if _version_numbers(board) < (2, 21) and (not tools or _version_numbers(tools) >= (82,)):
        says = f"TensorBoard {board} does not start with setuptools {tools or '(none)'}"
        return "fail", says, "pip install 'tensorboard>=2.21'"
    return "pass", f"TensorBoard {board}"


def all_read(machine: Machine) -> Judgement:
    """Every section of the report could be read."""
    if machine.unreadable:
        listed = "; ".join(f"{section}: {error}" for section, error in machine.unreadable.items())
        says = f"could not be read: {listed}"
        return "warn", says, "please report this with the output of truestep env --json"
    return "pass", "every section could be read"


CHECKS: tuple[Callable[[Machine], Judgement], ...] = (
    torch_loads,
    torch_complete,
    build_fits_card,
    driver_runs,
    driver_new_enough,
    capability_built,
    cuda_usable,
    one_cudnn,
    cuda_home,
    nvcc_fits,
    companions_fit,
    no_pynvml_shim,
    shared_memory,
    threads_fit,
    same_environment,
    tensorboard_starts,
    all_read,
)


def judge_machine(machine: Machine) -> tuple[EnvironmentVerdict, ...]:
    """Return every verdict, in the order in which a reader should mend things."""
    verdicts = []
    for check in CHECKS:
        status, says, *fix = check(machine)
        mend = fix[0] if fix and status != "pass" else None
        verdicts.append(EnvironmentVerdict(name=check.__name__, status=status, says=says, fix=mend))
    return tuple(verdicts)


def _package_version(machine: Machine, name: str) -> str | None:
    return next((package.version for package in machine.packages if package.name == name), None)


def _version_numbers(version: str | None) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version or "")
    return tuple(int(part) for part in match[0].split(".")) if match else ()
