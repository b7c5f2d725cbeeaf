# SPDX-License-Identifier: Apache-2.0
"""What becomes of each return code that nvml.h documents, through pynvml.

The codes are written out as nvml.h numbers them, so that a mix-up of names shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from discovery.driver_errors import DriverAbsent, DriverMismatch, GpuLost
from discovery.model import Gap, GpuState, Reason
from discovery.nvml.calls import Calls
from discovery.nvml.facts import read_gpu
from discovery.nvml.session import open_gpu
from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers import fields
from simulator.simulation import Return
from tests import machines
from tests.discovery.sampling import Sampler, small

FIRST = machines.gpu(0).bus_id
SERIAL = "nvmlDeviceGetSerial"
MEMORY_TEMPERATURE = 82
"""NVML_FI_DEV_MEMORY_TEMP."""

REASONS = {
    2: ("an argument is not valid", Reason.FAILED),
    3: ("not available on this device", Reason.UNSUPPORTED),
    4: ("the user has no permission", Reason.FORBIDDEN),
    5: ("initialised already", Reason.FAILED),
    6: ("a query found no such object", Reason.ABSENT),
    7: ("an argument is not large enough", Reason.FAILED),
    8: ("external power cables are not attached", Reason.FAILED),
    10: ("a time limit passed", Reason.FAILED),
    11: ("the kernel found an interrupt issue", Reason.FAILED),
    13: ("this library does not have the function", Reason.UNSUPPORTED),
    14: ("the inforom is corrupted", Reason.FAILED),
    17: ("the operating system blocks the GPU", Reason.FAILED),
    19: ("the GPU is in use", Reason.FAILED),
    20: ("not enough memory", Reason.FAILED),
    21: ("no data", Reason.FAILED),
    22: ("ECC is on, and vGPU does not have that", Reason.UNSUPPORTED),
    23: ("resources ran out", Reason.FAILED),
    24: ("the frequency is not supported", Reason.FAILED),
    25: ("this version of the argument is not known", Reason.UNSUPPORTED),
    26: ("the function was deprecated", Reason.UNSUPPORTED),
    27: ("not ready", Reason.FAILED),
    28: ("no GPUs were found", Reason.FAILED),
    29: ("in a state in which that cannot be", Reason.FAILED),
    999: ("an internal driver error", Reason.FAILED),
}
"""Code to what nvml.h means by it, and the reason of the gap. Source: nvmlReturn_t, nvml.h."""
LOST = {15: "the GPU fell off the bus", 16: "the GPU needs a reset"}
GONE = {1: DriverAbsent, 9: DriverAbsent, 12: DriverAbsent, 18: DriverMismatch}
"""Not initialised, no driver loaded, no library found, library and driver of two versions."""


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampler]:
    directory: Path = tmp_path_factory.mktemp("machine")
    with small(directory) as taken:
        yield taken


@pytest.fixture(autouse=True)
def _healthy(taken: Sampler) -> Iterator[None]:
    yield
    taken.simulation.clear()


def asked(taken: Sampler, code: int, call: str = SERIAL, **how: Any) -> list[Gap]:
    """The gaps of a call on which the driver answers with this code."""
    handle, _ = open_gpu(FIRST)
    taken.simulation.fault(Return(code=code), call, bus_id=FIRST)
    calls = Calls(**how)
    assert calls.ask("serial", call, handle) is None
    return calls.gaps


def test_every_code_of_the_library_is_in_one_of_the_tables() -> None:
    documented = {
        value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(value, int)
    }
    not_tried = {30}  # NVML_ERROR_RESET_TYPE_NOT_SUPPORTED: nothing here resets
    assert documented - not_tried <= REASONS.keys() | LOST.keys() | GONE.keys()


@pytest.mark.parametrize("code", REASONS, ids=lambda code: f"{code}: {REASONS[code][0]}")
def test_a_call_that_fails_leaves_the_reason_that_its_code_means(taken: Sampler, code: int) -> None:
    (gap,) = asked(taken, code)
    assert (gap.what, gap.reason, gap.source) == ("serial", REASONS[code][1], SERIAL)


@pytest.mark.parametrize("reason", [Reason.ABSENT, Reason.UNSUPPORTED])
def test_an_argument_that_is_not_valid_means_what_the_caller_says(
    taken: Sampler, reason: Reason
) -> None:
    """Of numbered things NVML refuses the number after the last so."""
    (gap,) = asked(taken, 2, invalid_argument=reason)
    assert gap.reason is reason
    taken.simulation.clear()
    (gap,) = asked(taken, 4, invalid_argument=reason)
    assert gap.reason is Reason.FORBIDDEN


@pytest.mark.parametrize("code", REASONS, ids=lambda code: f"{code}: {REASONS[code][0]}")
def test_a_field_that_fails_leaves_the_reason_that_its_own_code_means(
    taken: Sampler, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Alone of its call. A field that an older driver does not know is not valid to it."""

    def fail(_gpu: object) -> int:
        raise Nvml(code)

    monkeypatch.setitem(fields.GPU_FIELDS, MEMORY_TEMPERATURE, fail)
    sample = taken.sample(FIRST, ())
    gap = next(gap for gap in sample.gaps if gap.what == "memory_celsius")
    expected = Reason.UNSUPPORTED if code == 2 else REASONS[code][1]
    assert (gap.reason, gap.source) == (expected, "nvmlDeviceGetFieldValues(82)")
    assert sample.nvlink_sent_bytes is not None


@pytest.mark.parametrize("code", LOST, ids=lambda code: f"{code}: {LOST[code]}")
def test_a_lost_gpu_is_the_end_of_its_calls(taken: Sampler, code: int) -> None:
    handle, _ = open_gpu(FIRST)
    taken.simulation.fault(Return(code=code), SERIAL, bus_id=FIRST)
    with pytest.raises(GpuLost, match=SERIAL):
        Calls().ask("serial", SERIAL, handle)
    gpu = read_gpu(FIRST, handle, {})
    gap = gpu.gap("state")
    assert (gpu.state, gap and gap.reason) == (GpuState.LOST, Reason.LOST)


@pytest.mark.parametrize("code", GONE)
def test_a_session_is_gone_when_no_call_can_be_made(taken: Sampler, code: int) -> None:
    handle, _ = open_gpu(FIRST)
    taken.simulation.fault(Return(code=code))
    with pytest.raises(GONE[code], match=SERIAL):
        Calls().ask("serial", SERIAL, handle)


@pytest.mark.parametrize("code", GONE)
def test_one_call_that_claims_it_is_a_failed_call(taken: Sampler, code: int) -> None:
    (gap,) = asked(taken, code)
    assert gap.reason is Reason.FAILED


def test_success_without_a_list_means_that_there_is_nothing_in_it(taken: Sampler) -> None:
    """pynvml raises it as an error where a call succeeds that should have asked for more room."""
    call = "nvmlDeviceGetProcessUtilization"
    handle, _ = open_gpu(FIRST)
    taken.simulation.fault(Return(code=0), call, bus_id=FIRST)
    calls = Calls()
    assert calls.ask("processes", call, handle, 0) is None
    (gap,) = calls.gaps
    assert (gap.reason, gap.source) == (Reason.ABSENT, call)
