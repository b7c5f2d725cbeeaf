# SPDX-License-Identifier: Apache-2.0
"""On a machine with NVIDIA GPUs: what gpuscape says, against nvidia-smi and NVIDIA's own programs.

    .venv/bin/python -m pytest -m gpu tests/hardware

Nothing is set: persistence, ECC, MIG and clocks stay as they are, and a test looks whether they
do. Other programs may use the GPUs meanwhile, so what moves is compared within bounds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hardware.nvidia_smi import printed, query
from tests.hardware.running_agent import GPUSCAPE, agent, scrape

pytestmark = pytest.mark.gpu

MODES = ("persistence_mode", "ecc.mode.current", "mig.mode.current", "compute_mode", "power.limit")
MIB = 1 << 20
MISSING = ("[N/A]", "N/A")
"""What nvidia-smi says of what a GPU does not have."""


def gpuscape(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Standard output of a command that ends with one of these exit codes."""
    command = [GPUSCAPE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in codes, done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def nothing_is_changed() -> Iterator[None]:
    """The modes of all GPUs are after the tests what they were before."""
    before = query("uuid", *MODES)
    yield
    assert query("uuid", *MODES) == before


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """The GPUs as ``gpuscape discover`` sees them."""
    gpus: list[dict[str, Any]] = json.loads(gpuscape("discover", "-o", "json"))["gpus"]
    assert gpus
    return gpus


def bus_id(text: str) -> str:
    """As gpuscape writes it: four digits of domain, small letters."""
    return text.lower()[-12:]


def test_gpus_are_those_of_nvidia_smi(found: list[dict[str, Any]]) -> None:
    names = ("uuid", "serial", "name", "pci.bus_id", "memory.total", "vbios_version", "index")
    theirs = [
        (
            *(row[it] for it in names[:3]),
            bus_id(row["pci.bus_id"]),
            int(row["memory.total"]),
            row["vbios_version"],
            int(row["index"]),
        )
        for row in query(*names)
    ]
    ours = [
        (
            *(gpu[it] for it in ("uuid", "serial", "model", "bus_id")),
            gpu["memory_bytes"] // MIB,
            gpu["vbios_version"],
            gpu["index"],
        )
        for gpu in found
    ]
    assert ours == theirs


def test_mig_profiles_and_places_are_those_of_nvidia_smi() -> None:
    """Name, number, how many and where, of GPU 0; a GPU without MIG has none."""
    if query("mig.mode.current")[0]["mig.mode.current"] in MISSING:
        pytest.skip("GPU 0 has no MIG")
    profiles = re.findall(r"MIG (\S+) +(\d+) +\d+/(\d+)", printed("mig", "-lgip", "-i", "0"))
    places = re.findall(
        r"Profile ID +(\d+) Placements? *: \{([\d,]+)\}:(\d+)", printed("mig", "-lgipp", "-i", "0")
    )
    where = {
        number: ([int(it) for it in starts.split(",")], int(size))
        for number, starts, size in places
    }
    theirs = {name: (int(number), int(most), *where[number]) for name, number, most in profiles}
    shown = json.loads(gpuscape("mig", "explain", "-o", "json"))["gpus"][0]["profiles"]
    assert {it["name"]: (it["id"], it["most"], it["starts"], it["size"]) for it in shown} == theirs


def test_labels_are_those_of_gpu_feature_discovery(tmp_path: Path) -> None:
    """By NVIDIA's own program, which ``GFD`` names."""
    program = os.environ.get("GFD")
    if program is None:
        pytest.skip("GFD names no gpu-feature-discovery")
    (tmp_path / "config.yaml").write_text("version: v1\n", "utf-8")
    subprocess.run(
        [
            *(program, "--oneshot", "--no-timestamp", "--use-node-feature-api=false"),
            *("--mig-strategy=none", f"--config-file={tmp_path / 'config.yaml'}"),
            *(f"--output-file={tmp_path / 'labels'}",),
            "--machine-type-file=/sys/class/dmi/id/product_name",
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    theirs = dict(it.split("=", 1) for it in (tmp_path / "labels").read_text().splitlines())
    ours = json.loads(gpuscape("labels", "-o", "json", "--mig-strategy", "none"))
    timed = {"nvidia.com/gfd.timestamp"}
    assert {key: ours[key] for key in ours if key.startswith("nvidia.com/")}.keys() - timed == (
        theirs.keys()
    )
    assert {key: ours[key] for key in theirs} == theirs


def test_a_recording_shows_the_same_machine(tmp_path: Path) -> None:
    """Recorded and replayed, GPUs and labels are the same."""
    file = tmp_path / "machine.json"
    gpuscape("record", "--no-anonymise", str(file))
    for command in (["discover"], ["topo"], ["labels"]):
        replayed = json.loads(gpuscape(*command, "-o", "json", "--simulate", str(file)))
        assert lasting(replayed) == lasting(json.loads(gpuscape(*command, "-o", "json")))


def lasting(value: Any) -> Any:
    """Without the host's name, which no recording has, and without times."""
    if isinstance(value, dict):
        kept = {key: it for key, it in value.items() if not key.endswith("timestamp")}
        if "machine_type" in kept:
            del kept["name"]
        return {key: lasting(it) for key, it in kept.items()}
    return [lasting(it) for it in value] if isinstance(value, list) else value


def test_the_doctor_finds_no_fault_of_the_driver() -> None:
    """It may find others, as those of a kubelet: exit code 1."""
    found = json.loads(gpuscape("doctor", "--standalone", "-o", "json", codes=(0, 1)))
    outcomes = {it["check"]: it["outcome"] for it in found["checks"]}
    for check in ("driver", "device-nodes", "gpus", "readings"):
        assert outcomes[check] == "ok", found


@pytest.fixture(scope="module")
def scraped() -> list[dict[str, float]]:
    """Values by family of each GPU."""
    with agent():
        text = scrape()
    by_uuid: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        series = re.fullmatch(r'(\w+)\{.*?(?:UUID|uuid)="([^"]+)"(.*)\} (\S+)', line)
        if series and "reason=" not in series[3] and "limit=" not in series[3]:
            by_uuid.setdefault(series[2], {})[series[1]] = float(series[4])
    return [by_uuid[row["uuid"]] for row in query("uuid")]


@pytest.mark.parametrize(
    ("family", "name", "apart"),
    [
        ("DCGM_FI_DEV_FB_FREE", "memory.free", 64),
        ("DCGM_FI_DEV_FB_USED", "memory.used", 64),
        ("DCGM_FI_DEV_FB_RESERVED", "memory.reserved", 1),
        ("DCGM_FI_DEV_GPU_TEMP", "temperature.gpu", 4),
        ("DCGM_FI_DEV_MEMORY_TEMP", "temperature.memory", 4),
        ("DCGM_FI_DEV_POWER_USAGE", "power.draw", 60),
        ("DCGM_FI_DEV_MEM_CLOCK", "clocks.mem", 1),
        ("gpuscape_gpu_pcie_generation", "pcie.link.gen.current", 0),
        ("gpuscape_gpu_pcie_lanes", "pcie.link.width.current", 0),
    ],
)
def test_metrics_are_what_nvidia_smi_says(
    scraped: list[dict[str, float]], family: str, name: str, apart: float
) -> None:
    theirs = [row[name] for row in query(name)]
    for ours, their in zip(scraped, theirs, strict=True):
        if their in MISSING:
            assert family not in ours
        else:
            assert ours[family] == pytest.approx(float(their), abs=apart)


def test_the_power_limit_is_what_nvidia_smi_says() -> None:
    limit = query("power.limit")[0]["power.limit"]
    if limit in MISSING:
        pytest.skip("GPU 0 has no power limit")
    shown = json.loads(gpuscape("top", "--once", "-o", "json"))
    assert shown["gpus"][0]["power_limit_watts"] == pytest.approx(float(limit))
