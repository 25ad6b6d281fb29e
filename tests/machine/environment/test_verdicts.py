# SPDX-License-Identifier: Apache-2.0
"""Each verdict on machines that are right and wrong in its one respect."""

from dataclasses import replace

import pytest

from truestep.machine.environment import verdicts
from truestep.machine.environment.container import ContainerLimits
from truestep.machine.environment.cuda_toolkit import CudaHomeCandidate, CudaToolkit, Nvcc
from truestep.machine.environment.facts import Machine
from truestep.machine.environment.libraries import SharedLibrary
from truestep.machine.environment.packages import InstalledPackage
from truestep.machine.environment.system import (
    MainMemory,
    OperatingSystem,
    ProcessLimits,
    Processor,
    PythonInstallation,
)
from truestep.machine.environment.torch_build import TorchBuild
from truestep.machine.gpus.read import GpuReport
from truestep.machine.gpus.records import Gpu, PciCard

GIB = 2**30
TORCH = TorchBuild(
    version="2.13.0+cu130",
    folder="/env/torch",
    cuda="13.0",
    loads=True,
    cuda_available=True,
    architectures=("sm_80", "sm_90", "compute_90"),
    cudnn_version="9.10.2",
    num_threads=8,
)
CARD = Gpu(index=0, name="NVIDIA H200", compute_capability="9.0")
GPUS = GpuReport(taken_at="", hostname="", driver_version="580.65", cuda_version="13.0", gpus=(CARD,))
ON_BUS = PciCard(bus_id="0000:18:00.0", vendor="NVIDIA", device="0x2335", driver="nvidia")
TOOLKIT = "/usr/local/cuda-13.0"
HOME = CudaHomeCandidate(
    source="CUDA_HOME", path=TOOLKIT, wins=True, has_bin=True, has_include=True, has_lib64=True
)
NVCC = Nvcc(path=f"{TOOLKIT}/bin/nvcc", version="13.0.88", toolkit=TOOLKIT)
WHEEL = SharedLibrary(
    path="/env/nvidia/cudnn/lib/libcudnn.so.9", version="9.10.2", found_by="wheel nvidia-cudnn-cu13"
)


def package(name, version, **more):
    return InstalledPackage(name=name, version=version, location="/env", **more)


SOUND = Machine(
    taken_at="",
    torch=TORCH,
    torch_lacks=(),
    torch_shadowed_by=None,
    gpus=GPUS,
    cards_on_bus=(ON_BUS,),
    toolkit=CudaToolkit(homes=(HOME,), nvccs=(NVCC,)),
    cudnn=(WHEEL,),
    nccl=(),
    python=PythonInstallation(
        version="3.11",
        implementation="CPython",
        executable="/env/bin/python",
        prefix="/env",
        virtual=True,
        active_environment="/env",
    ),
    packages=(
        package("torch", "2.13.0+cu130"),
        package("torchvision", "0.28.0+cu130"),
        package("tensorboard", "2.21"),
    ),
    system=OperatingSystem(name="Debian", kernel="6", libc="glibc-2.36", compilers={}, host="h"),
    processor=Processor(
        model="CPU", architecture="x86_64", cores=8, threads=8, usable=8, instruction_sets=()
    ),
    memory=MainMemory(
        total_bytes=GIB, available_bytes=GIB, swap_bytes=0, shared_total_bytes=8 * GIB, shared_free_bytes=GIB
    ),
    disks=(),
    limits=ProcessLimits(),
    container=ContainerLimits(kind=None),
    variables={},
    unreadable={},
)


def torch(**changes):
    return {"torch": replace(TORCH, **changes)}


def gpus(**changes):
    return {"gpus": replace(GPUS, **changes)}


def home(**changes):
    return {"toolkit": CudaToolkit(homes=(replace(HOME, **changes),), nvccs=(NVCC,))}


def shared(total):
    return {"memory": replace(SOUND.memory, shared_total_bytes=total)}


def packages(*pairs):
    return {"packages": tuple(package(name, version) for name, version in pairs)}


SECOND_CUDNN = SharedLibrary(path="/opt/lib/libcudnn.so.9", version="9.1.0", found_by="LD_LIBRARY_PATH")
CPU_TORCH = torch(cuda=None, version="2.13.0+cpu", cudnn_version=None, cuda_available=False, architectures=())

# verdict, what is changed, status, what is said
CASES = [
    ("torch_loads", {}, "pass", "torch 2.13.0+cu130 loads"),
    ("torch_loads", {"torch": None}, "skip", "not installed"),
    (
        "torch_loads",
        torch(loads=False, error="ImportError: libcudnn.so.9"),
        "fail",
        "ImportError: libcudnn.so.9",
    ),
    ("torch_complete", {}, "pass", "once"),
    ("torch_complete", {"torch_shadowed_by": "torch.py"}, "fail", "import its torch.py"),
    ("torch_complete", {"torch_lacks": ("sympy",)}, "fail", "not installed: sympy"),
    ("torch_complete", packages(("torch", "2.13.0"), ("torch", "2.11.0")), "fail", "more than once"),
    ("build_fits_card", {}, "pass", "CUDA 13.0"),
    ("build_fits_card", CPU_TORCH, "fail", "is for the CPU, beside a card of NVIDIA"),
    (
        "build_fits_card",
        {**CPU_TORCH, **gpus(gpus=()), "cards_on_bus": (replace(ON_BUS, vendor="AMD"),)},
        "fail",
        "AMD",
    ),
    ("build_fits_card", {**gpus(gpus=()), "cards_on_bus": ()}, "skip", "no card"),
    ("driver_runs", {}, "pass", "580.65"),
    ("driver_runs", gpus(gpus=(replace(CARD, error="GPU is lost"),)), "fail", "card 0: GPU is lost"),
    ("driver_runs", gpus(gpus=(), error="no driver"), "fail", "1 NVIDIA card(s) on the bus, but no driver"),
    ("driver_runs", {**gpus(gpus=()), "cards_on_bus": ()}, "skip", "no NVIDIA card"),
    ("driver_new_enough", {}, "pass", "supports CUDA 13.0"),
    ("driver_new_enough", gpus(cuda_version="12.8"), "fail", "supports CUDA 12.8, torch was built for 13.0"),
    ("driver_new_enough", {**torch(cuda="12.8"), **gpus(cuda_version="12.4")}, "warn", "PTX"),
    ("driver_new_enough", {**torch(cuda="12.10"), **gpus(cuda_version="12.9")}, "warn", "12.9"),
    ("driver_new_enough", {**torch(cuda="12.4"), **gpus(cuda_version="13.0")}, "pass", "13.0"),
    ("driver_new_enough", gpus(cuda_version=None), "skip", "no CUDA build"),
    ("capability_built", {}, "pass", "9.0"),
    ("capability_built", gpus(gpus=(replace(CARD, compute_capability="7.0"),)), "fail", "capability 7.0"),
    ("capability_built", gpus(gpus=(replace(CARD, compute_capability=None),)), "skip", "no CUDA build"),
    ("cuda_usable", {}, "pass", "sees a CUDA device"),
    ("cuda_usable", {**torch(cuda_available=False), "variables": {"CUDA_VISIBLE_DEVICES": ""}}, "fail", "''"),
    ("cuda_usable", torch(cuda_available=False, cuda_error="driver too old"), "fail", "driver too old"),
    ("cuda_usable", {**torch(cuda_available=False), **gpus(gpus=(), error="no driver")}, "warn", "no driver"),
    ("one_cudnn", {}, "pass", "one cuDNN: 9.10.2"),
    ("one_cudnn", {"cudnn": (WHEEL, SECOND_CUDNN)}, "fail", "9.1.0 at /opt/lib/libcudnn.so.9"),
    ("one_cudnn", {"cudnn": (WHEEL, replace(SECOND_CUDNN, found_by="loader cache"))}, "warn", "second cuDNN"),
    ("one_cudnn", {"cudnn": (WHEEL, replace(SECOND_CUDNN, version="9.10.2"))}, "pass", "9.10.2"),
    ("one_cudnn", CPU_TORCH, "skip", "without cuDNN"),
    ("cuda_home", {}, "pass", f"CUDA_HOME is {TOOLKIT}"),
    ("cuda_home", home(wrong="it is a wrapper"), "fail", "torch takes"),
    ("cuda_home", {**home(wrong="it is a wrapper"), **CPU_TORCH}, "warn", "would take"),
    ("cuda_home", {"toolkit": CudaToolkit(homes=(), nvccs=())}, "skip", "no CUDA toolkit"),
    ("nvcc_fits", {}, "pass", "13.0.88"),
    ("nvcc_fits", torch(cuda="12.8"), "fail", "extensions will not compile"),
    ("nvcc_fits", torch(cuda="13.2"), "warn", "torch warns"),
    ("companions_fit", {}, "pass", "torchvision 0.28.0+cu130 fit torch 2.13.0+cu130"),
    (
        "companions_fit",
        packages(("torch", "2.13.0"), ("torchvision", "0.26.0")),
        "fail",
        "built for torch 2.11",
    ),
    ("companions_fit", packages(("torch", "2.13.0"), ("torchaudio", "2.13.0")), "pass", "torchaudio"),
    (
        "companions_fit",
        packages(("torch", "2.13.0"), ("torchaudio", "2.11.0")),
        "fail",
        "built for torch 2.11",
    ),
    ("companions_fit", packages(("torch", "2.13.0+cpu"), ("torchvision", "0.28.0+cu130")), "fail", "+cu130"),
    ("companions_fit", packages(("torch", "2.13.0")), "skip", "no torchvision"),
    ("no_pynvml_shim", {}, "pass", "no pynvml"),
    ("no_pynvml_shim", packages(("pynvml", "13.0.1")), "fail", "pynvml 13.0.1"),
    ("shared_memory", {}, "pass", "8192 MiB"),
    ("shared_memory", shared(64 * 2**20), "fail", "/dev/shm has 64 MiB"),
    ("shared_memory", shared(512 * 2**20), "warn", "512 MiB"),
    ("shared_memory", shared(None), "skip", "no /dev/shm"),
    ("threads_fit", {}, "pass", "8 thread(s)"),
    ("threads_fit", {"processor": replace(SOUND.processor, usable=2)}, "fail", "8 thread(s), 2 CPU(s)"),
    ("threads_fit", torch(num_threads=None), "skip", "no torch"),
    ("same_environment", {}, "pass", "/env"),
    ("same_environment", {"python": replace(SOUND.python, active_environment="/other")}, "warn", "/other"),
    ("tensorboard_starts", {}, "pass", "2.21"),
    (
        "tensorboard_starts",
        packages(("tensorboard", "2.20.0"), ("setuptools", "82.0")),
        "fail",
        "setuptools 82.0",
    ),
    ("tensorboard_starts", packages(("tensorboard", "2.20.0"), ("setuptools", "81.0")), "pass", "2.20.0"),
    ("tensorboard_starts", packages(("tensorboard", "2.20.0")), "fail", "(none)"),
    ("all_read", {}, "pass", "every section"),
    ("all_read", {"unreadable": {"disks": "OSError: x"}}, "warn", "disks: OSError: x"),
]


@pytest.mark.parametrize(("name", "changes", "status", "said"), CASES)
def test_a_verdict(name, changes, status, said):
    verdict = next(one for one in verdicts.judge_machine(replace(SOUND, **changes)) if one.name == name)
    assert (verdict.status, said in verdict.says) == (status, True), verdict.says
    if status == "fail":
        assert verdict.fix


def test_a_sound_machine_passes_everything():
    assert {"pass"} == {verdict.status for verdict in verdicts.judge_machine(SOUND)}


def test_each_verdict_has_a_case_for_pass_and_for_what_it_warns_of():
    for check in verdicts.CHECKS:
        statuses = {status for name, _, status, _ in CASES if name == check.__name__}
        assert {"pass"} < statuses, check.__name__


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ("8.6", ("sm_80",), True),  # the same major version, older minor
        ("8.0", ("sm_86",), False),
        ("9.0", ("sm_80",), False),
        ("9.0", ("sm_80", "compute_80"), True),  # PTX is compiled for newer cards
        ("8.0", ("compute_90",), False),
        ("9.0", ("sm_90a",), True),
        ("9.1", ("sm_90a",), False),
        ("12.0", ("sm_120",), True),
        ("12.1", ("sm_120f",), True),
        ("10.3", ("sm_103a",), True),
        ("10.3", ("sm_100f",), True),
        ("7.5", ("gfx942",), False),
    ],
)
def test_which_builds_run_on_which_cards(capability, architectures, runs):
    assert runs == verdicts.cuda_architecture_runs_on(capability, architectures)


def test_a_companion_that_pins_its_torch_is_believed(tmp_path):
    metadata = tmp_path / "torchvision-0.99.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Name: torchvision\nRequires-Dist: numpy\nRequires-Dist: torch==2.13.0\n\ntext"
    )
    vision = InstalledPackage(
        name="torchvision", version="0.99.0", location=str(tmp_path), metadata=str(metadata)
    )
    for version, status in (("2.13.0", "pass"), ("2.13.1", "fail")):
        machine = replace(SOUND, packages=(package("torch", version), vision))
        assert (version, verdicts.companions_fit(machine)[0]) == (version, status)
