# SPDX-License-Identifier: Apache-2.0
"""A plan's template is checked by mypy, field by field; what it reads is a value of its type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pynvml as nv
import pytest

from discovery.driver_errors import GpuLost
from discovery.nvml.calls import Calls
from discovery.nvml.conversions import COUNT, MILLIWATTS
from discovery.nvml.reading_plan import (
    OpenGpu,
    ReadingPlan,
    SharedCall,
    always_part,
    by_call,
    by_field,
    computed,
    in_part,
)
from discovery.sample import HeldDown, NvLinkErrors, PowerLimits, ReadingGroup, RetiredPages
from tests import build


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """A value with two parts."""

    power_limits: PowerLimits | None
    held_down: HeldDown | None


GPU = OpenGpu(bus_id="0000:10:00.0", handle=None, calls=Calls())


def test_a_misspelt_reading_and_a_field_that_nothing_fills_are_type_errors() -> None:
    """mypy says so if an error that is ignored here is none any more."""
    with pytest.raises(TypeError, match="crc_flits"):
        NvLinkErrors(  # type: ignore[call-arg]
            crc_flits=by_field(nv.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, COUNT),
            crc_data=None,
            replay=None,
            recovery=None,
        )
    with pytest.raises(TypeError, match="recovery"):
        NvLinkErrors(  # type: ignore[call-arg]
            crc_flit=by_field(nv.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, COUNT),
            crc_data=None,
            replay=None,
        )


def test_a_reading_of_another_type_is_a_type_error() -> None:
    template = RetiredPages(
        corrected=by_call("nvmlDeviceGetPowerUsage", convert=MILLIWATTS),  # type: ignore[arg-type]
        uncorrected=None,
        pending=None,
    )
    assert template.corrected is not None


def test_a_value_is_what_was_read_the_constants_and_nothing_else() -> None:
    plan = ReadingPlan(
        PowerLimits(
            current=computed(lambda _gpu, what: float(len(what))),
            enforced=computed(lambda _gpu, _what: 2.0, groups=(ReadingGroup.LIMITS,)),
            default=3.0,
            lowest=computed(lambda _gpu, _what: None),
            highest=None,
        )
    )

    assert plan.read(GPU) == (build.only(PowerLimits, current=7.0, default=3.0), None)
    assert plan.read(GPU, (ReadingGroup.LIMITS,))[0].enforced == 2.0
    assert plan.read(GPU, ())[0].enforced is None


def test_readings_are_made_as_they_are_written_and_those_of_one_answer_with_the_first() -> None:
    """Until the GPU is lost; the value of a part keeps what was read of it."""
    made: list[object] = []

    def note(_gpu: OpenGpu, what: str) -> float:
        made.append(what)
        if what == "held_down.base_clocks":
            raise GpuLost("gone")
        return 1.0

    class Noted(Calls):
        def parts(self, converts: Any, call: str, *args: object) -> dict[str, Any]:
            del call, args
            made.append(tuple(converts))
            return dict.fromkeys(converts, 2.0)

    answer = SharedCall("nvmlDeviceGetPowerUsage")
    gpu = OpenGpu(bus_id=GPU.bus_id, handle=None, calls=Noted())
    plan = ReadingPlan(
        build.only(
            Both,
            power_limits=in_part(
                build.only(
                    PowerLimits,
                    lowest=answer.part(float),
                    current=computed(note),
                    highest=answer.part(float),
                )
            ),
            held_down=in_part(
                build.only(HeldDown, base_clocks=computed(note), power=computed(note))
            ),
        )
    )

    found, lost = plan.read(gpu)

    both = ("power_limits.lowest", "power_limits.highest")
    assert made == [both, "power_limits.current", "held_down.base_clocks"]
    assert found.power_limits == build.only(PowerLimits, lowest=2.0, current=1.0, highest=2.0)
    assert (found.held_down, str(lost)) == (None, "gone")
    assert [gap.what for gap in gpu.calls.gaps] == ["state"]


@pytest.mark.parametrize("lowest", [None, 2.0])
def test_a_part_that_is_always_there_needs_no_reading_and_its_gaps_name_its_fields_alone(
    lowest: float | None,
) -> None:
    gap_names: list[str] = []

    def read(_gpu: OpenGpu, what: str) -> float | None:
        gap_names.append(what)
        return lowest

    limits = build.only(PowerLimits, lowest=computed(read))
    plan = ReadingPlan(build.only(Both, power_limits=always_part(limits)))

    assert plan.read(GPU) == (
        build.only(Both, power_limits=build.only(PowerLimits, lowest=lowest)),
        None,
    )
    assert gap_names == ["lowest"]
