# SPDX-License-Identifier: Apache-2.0
"""When a device is unhealthy, and when it is healthy again."""

from __future__ import annotations

from devices.device_health import DAY_SECONDS, CauseSeverity, DeviceHealth, Sighting, after

NONE, UNKNOWN, SOFT, FATAL = (
    CauseSeverity.NONE,
    CauseSeverity.UNKNOWN,
    CauseSeverity.SOFT,
    CauseSeverity.FATAL,
)


class Device:
    """A device with its readings, one every ten seconds unless told else."""

    def __init__(self) -> None:
        self.health, self.now, self.reading = DeviceHealth(), 0.0, 0

    def sees(self, severity: CauseSeverity, *, seconds: float = 10, new: bool = True) -> bool:
        """Whether it is healthy after this reading."""
        self.now += seconds
        self.reading += new
        reason = "why" if severity > UNKNOWN else ""
        sighting = Sighting(reading=self.reading, severity=severity, reason=reason)
        self.health = after(self.health, sighting, self.now)
        return self.health.healthy

    def recovery_seconds(self) -> int:
        """Time without a cause until it is healthy again; at most a day."""
        assert not self.sees(NONE, seconds=1)
        began = self.now
        while not self.sees(NONE, seconds=1) and self.now - began < DAY_SECONDS:
            pass
        return round(self.now - began)


def test_a_fatal_cause_counts_at_once() -> None:
    device = Device()
    assert not device.sees(FATAL)
    assert device.health.reason == "why"


def test_a_soft_cause_counts_with_its_second_reading() -> None:
    device = Device()
    assert device.sees(SOFT)
    assert device.sees(SOFT, new=False), "the same reading once more"
    assert not device.sees(SOFT)


def test_a_soft_cause_that_comes_and_goes_never_counts() -> None:
    device = Device()
    assert all(device.sees(severity) for severity in (SOFT, NONE) * 20)


def test_a_device_that_nobody_can_read_stays_as_it_is() -> None:
    device = Device()
    assert all(device.sees(UNKNOWN) for _ in range(20))
    device.sees(FATAL)
    assert not any(device.sees(UNKNOWN) for _ in range(20))


def test_it_is_healthy_when_the_cause_was_gone_for_a_minute() -> None:
    device = Device()
    device.sees(FATAL)
    assert device.recovery_seconds() == 60
    assert device.health.reason == ""


def test_the_minute_begins_anew_with_each_sighting_and_each_gap() -> None:
    for between in (SOFT, FATAL, UNKNOWN):
        device = Device()
        device.sees(FATAL)
        assert not any(device.sees(NONE) for _ in range(6))
        assert not device.sees(between)
        assert device.recovery_seconds() == 60


def test_the_second_time_takes_twice_as_long_and_the_third_within_a_day_is_final() -> None:
    device = Device()
    device.sees(FATAL)
    device.recovery_seconds()
    device.sees(FATAL)
    assert device.recovery_seconds() == 120
    device.sees(FATAL)
    assert device.health.stuck
    assert device.health.due is None
    assert not device.sees(NONE, seconds=10 * DAY_SECONDS)


def test_the_wait_doubles_up_to_an_hour_and_a_day_without_trouble_ends_that() -> None:
    device, waits = Device(), []
    for _ in range(9):
        device.sees(FATAL, seconds=0.6 * DAY_SECONDS)
        waits.append(device.recovery_seconds())
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    device.sees(FATAL, seconds=DAY_SECONDS)
    assert device.recovery_seconds() == 60


def test_it_is_known_when_it_is_due() -> None:
    device = Device()
    assert device.health.due is None
    device.sees(FATAL)
    assert device.health.due is None
    device.sees(NONE)
    assert device.health.due == device.now + 60
