# SPDX-License-Identifier: Apache-2.0
"""What a machine file says of resets holds from the start, or is refused with line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from base.errors import BadInput
from simulator.description.machine_schema import ResetSpec
from simulator.simulation import simulate

FILE = """\
summary: an A100
sources: []
host: {machine_type: Small, memory_gib: 64, numa: ["0-3"]}
driver: {version: "550.54.15", nvml: "12.550.54.15", cuda: 12040}
gpus: [{model: a100-pcie-40gb, bus_id: "0000:10:00.0", path: ["0000:00:01.0"]}]
reset: """


def test_the_file_s_settings_are_the_machine_s(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(f"{FILE}{{mode_change: reset-required, seconds: 20, renumbers: true}}\n")

    reset = simulate(str(file), tmp_path / "made").state.reset

    assert reset == ResetSpec(mode_change="reset-required", seconds=20.0, renumbers=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{seconds: -1}", ("reset.seconds", "0 to 3600 s")),
        ("{seconds: 4000}", ("reset.seconds", "result: hangs")),
        ("{seconds: long}", ("reset.seconds", "number")),
        ("{result: explodes}", ("reset.result", "explodes", "done, fails, ")),
        ("{mode_change: never}", ("reset.mode_change", "never", "not-supported")),
        ("{renumbers: 1}", ("reset.renumbers", "true or false")),
        ("{fabric_manager: true}", ("reset.fabric_manager", "switched: true")),
        ("{second: 1}", ("reset.second", "did you mean 'seconds'?")),
    ],
)
def test_a_bad_value_is_refused_with_its_place(
    tmp_path: Path, settings: str, words: tuple[str, ...]
) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(f"{FILE}{settings}\n")

    with pytest.raises(BadInput) as refused:
        simulate(str(file), tmp_path / "made")

    text = str(refused.value)
    assert f"{file}:6" in text
    assert all(word in text for word in words), text
