# SPDX-License-Identifier: Apache-2.0
"""Rotation of the certificates: alone, several at once, and with everything that may go wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api import names
from kube.api import SECRETS
from kube.api_errors import AdmissionRefused, Busy, Forbidden, Unreachable
from scheduler.certificates import key_pairs
from scheduler.certificates.certificate_rotation import (
    AGAIN_SECONDS,
    CHECK_SECONDS,
    CertificateRotation,
)
from scheduler.certificates.renewal import AUTHORITY_LIFE, LIFE
from tests.scheduler.certificates.secrets import ALL, NAMESPACE, Stored, are_connected

DAY = timedelta(days=1)


@pytest.fixture
def stored() -> Stored:
    return Stored()


def test_empty_secrets_are_filled_so_that_both_sides_connect(
    stored: Stored, tmp_path: Path
) -> None:
    """By OpenSSL's own judgement, at the time of this machine."""
    stored.now = datetime.now(UTC)
    rotation, _ = stored.rotation()

    assert not rotation.is_settled
    assert rotation.tick() == CHECK_SECONDS

    assert rotation.is_settled
    _, server, client = (stored.content(name) for name in ALL)
    name = "gpuscape-scheduler.gpuscape.svc"
    assert are_connected(server, client, tmp_path, name)
    assert not are_connected(server, client, tmp_path, "another.gpuscape.svc")


def test_a_round_in_which_nothing_is_due_writes_nothing(stored: Stored) -> None:
    rotation, api = stored.rotation()
    rotation.tick()
    before = len(api.writes())

    stored.now += 100 * DAY
    rotation.tick()
    again, other = stored.rotation()
    again.tick()

    assert before == len(api.writes()) == 3
    assert other.writes() == []
    assert again.is_settled


def test_the_authority_is_stored_before_what_it_signs(stored: Stored) -> None:
    rotation, api = stored.rotation()
    rotation.tick()

    assert [call.name for call in api.writes()] == list(ALL)


def test_only_the_secrets_that_change_are_written(stored: Stored) -> None:
    rotation, api = stored.rotation()
    rotation.tick()
    stored.empty(names.KUBE_SCHEDULER_TLS)

    rotation.tick()

    assert [call.name for call in api.writes()[3:]] == [names.KUBE_SCHEDULER_TLS]


def test_keys_of_others_in_a_secret_are_left_alone(stored: Stored) -> None:
    stored.put(names.SCHEDULER_TLS, note_txt=b"mine")
    rotation, _ = stored.rotation()

    rotation.tick()

    assert stored.content(names.SCHEDULER_TLS)["note.txt"] == b"mine"


@pytest.mark.parametrize("kill_before", range(1, 7))
def test_a_death_at_any_request_leaves_what_the_next_one_completes(
    stored: Stored, tmp_path: Path, kill_before: int
) -> None:
    """Each of three writes is tried before it is made."""
    stored.now = datetime.now(UTC)

    class Killed(BaseException):
        """What no program catches."""

    left = [kill_before]

    def die(_: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed

    first, api = stored.rotation()
    api.before("patch", die)
    with pytest.raises(Killed):
        first.tick()
    second, _ = stored.rotation()
    second.tick()

    assert second.is_settled
    assert len(key_pairs.pem_certificates(stored.content(names.SCHEDULER_CA)["ca.crt"])) == 1
    _, server, client = (stored.content(name) for name in ALL)
    assert are_connected(server, client, tmp_path, "gpuscape-scheduler.gpuscape.svc")


def together(rotations: list[CertificateRotation]) -> None:
    """Each in a thread of its own, until all are settled."""

    def work(rotation: CertificateRotation) -> None:
        start.wait()
        for _ in range(20):
            rotation.tick()

    start = threading.Barrier(len(rotations))
    threads = [threading.Thread(target=work, args=(rotation,)) for rotation in rotations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("run", range(5))
def test_three_that_start_at_once_agree_on_one_authority(
    stored: Stored, tmp_path: Path, run: int
) -> None:
    stored.now = datetime.now(UTC)
    made = [stored.rotation() for _ in range(3)]

    together([rotation for rotation, _ in made])

    assert all(rotation.is_settled for rotation, _ in made)
    contents = stored.contents()
    (authority,) = key_pairs.pem_certificates(contents[names.SCHEDULER_CA]["ca.crt"])
    for name in ALL[1:]:
        assert key_pairs.pem_certificates(contents[name]["ca.crt"]) == (authority,)
    server, client = (contents[name] for name in ALL[1:])
    assert are_connected(server, client, tmp_path, "gpuscape-scheduler.gpuscape.svc"), run


def cutting_in(rival: CertificateRotation, at: int = 1) -> Callable[[object], None]:
    """Before this request of a slower rotation the rival makes a whole round."""
    left = [at]

    def cut_in(_: object) -> None:
        left[0] -= 1
        if not left[0]:
            rival.tick()

    return cut_in


@pytest.mark.parametrize("cut_in_at", range(1, 7))
def test_one_that_was_overtaken_takes_over_what_the_other_made(
    stored: Stored, cut_in_at: int
) -> None:
    rival, _ = stored.rotation()
    slow, api = stored.rotation()
    api.before("patch", cutting_in(rival, cut_in_at))
    while slow.tick() != CHECK_SECONDS:
        pass

    assert slow.is_settled
    assert len(key_pairs.pem_certificates(stored.content(names.SCHEDULER_CA)["ca.crt"])) == 1
    before = stored.contents()
    rival.tick()
    slow.tick()
    assert stored.contents() == before


def test_conflicts_are_tried_again_soon_and_not_reported(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    rival, _ = stored.rotation()
    slow, api = stored.rotation()
    api.before("patch", cutting_in(rival))

    with caplog.at_level(logging.WARNING):
        assert slow.tick() == AGAIN_SECONDS

    assert caplog.messages == []


def test_a_deleted_secret_is_reported_once_and_filled_when_it_is_there_again(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    rotation, _ = stored.rotation()
    rotation.tick()
    before = stored.contents()
    stored.server.delete(SECRETS, names.SCHEDULER_TLS, NAMESPACE)

    with caplog.at_level(logging.WARNING):
        rotation.tick()
        rotation.tick()
    assert caplog.messages == ["Secret missing"]
    assert not rotation.is_settled

    stored.add(names.SCHEDULER_TLS)
    rotation.tick()
    assert rotation.is_settled
    after = stored.contents()
    assert after[names.SCHEDULER_CA] == before[names.SCHEDULER_CA]
    assert after[names.KUBE_SCHEDULER_TLS] == before[names.KUBE_SCHEDULER_TLS]

    stored.server.delete(SECRETS, names.SCHEDULER_TLS, NAMESPACE)
    rotation.tick()
    assert caplog.messages.count("Secret missing") == 2


def test_a_deleted_authority_is_put_back_as_it_was(stored: Stored) -> None:
    """So kube-scheduler, which reads once whom it trusts, need not be started again."""
    rotation, _ = stored.rotation()
    rotation.tick()
    before = stored.contents()
    stored.server.delete(SECRETS, names.SCHEDULER_CA, NAMESPACE)
    rotation.tick()
    stored.add(names.SCHEDULER_CA)

    rotation.tick()

    assert stored.contents() == before


def test_without_the_authoritys_secret_nothing_is_signed(stored: Stored) -> None:
    """It would be by an authority that is lost with the program."""
    stored.server.delete(SECRETS, names.SCHEDULER_CA, NAMESPACE)
    rotation, api = stored.rotation()

    rotation.tick()

    assert api.writes() == []
    assert not rotation.is_settled


def test_all_secrets_emptied_at_once_are_filled_by_the_authority_that_was(stored: Stored) -> None:
    rotation, _ = stored.rotation()
    rotation.tick()
    before = stored.content(names.SCHEDULER_CA)
    for name in ALL:
        stored.empty(name)

    rotation.tick()

    assert stored.content(names.SCHEDULER_CA) == before
    assert rotation.is_settled


def test_data_that_is_no_base64_counts_as_none(stored: Stored) -> None:
    rotation, _ = stored.rotation()
    patch = {"data": {"ca.crt": "%%%", "ca.key": None}}
    stored.server.patch(SECRETS, names.SCHEDULER_CA, patch, NAMESPACE, manager="kubectl")

    rotation.tick()

    assert rotation.is_settled


@pytest.mark.parametrize("late", [16, 60 * 24, -16, -60 * 24 * 400])
def test_a_clock_that_is_not_the_api_servers_makes_nothing(
    stored: Stored, late: int, caplog: pytest.LogCaptureFixture
) -> None:
    rotation, api = stored.rotation(late=timedelta(minutes=late))

    with caplog.at_level(logging.WARNING):
        rotation.tick()
        rotation.tick()

    assert api.writes() == []
    assert not rotation.is_settled
    assert caplog.messages == ["clock differs from the API server's"]


@pytest.mark.parametrize("late", [14, -14])
def test_a_clock_that_is_a_little_off_is_good_enough(
    stored: Stored, tmp_path: Path, late: int
) -> None:
    stored.now = datetime.now(UTC)
    rotation, _ = stored.rotation(late=timedelta(minutes=late))

    rotation.tick()

    _, server, client = (stored.content(name) for name in ALL)
    assert are_connected(server, client, tmp_path, "gpuscape-scheduler.gpuscape.svc")


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no answer"),
        Busy("later"),
        Forbidden("no right to"),
        AdmissionRefused("refused", policy="gpuscape-certificates-secret"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("verb", ["get", "patch"])
def test_a_server_that_refuses_or_is_away_is_asked_again_and_reported_once(
    stored: Stored, verb: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    rotation, api = stored.rotation()
    api.fail(verb, error, times=3)  # type: ignore[arg-type]  # each is one

    with caplog.at_level(logging.WARNING):
        assert [rotation.tick() for _ in range(3)] == [AGAIN_SECONDS] * 3
    assert caplog.messages == ["Secret not read or written"]
    assert not rotation.is_settled

    rotation.tick()
    assert rotation.is_settled

    api.fail("get", error)
    rotation.tick()
    assert caplog.messages == ["Secret not read or written"] * 2


def test_a_lost_answer_to_a_write_does_no_harm(stored: Stored) -> None:
    rotation, api = stored.rotation()
    api.lose_reply("patch", times=6)

    while rotation.tick() != CHECK_SECONDS:
        pass

    assert rotation.is_settled
    assert len(key_pairs.pem_certificates(stored.content(names.SCHEDULER_CA)["ca.crt"])) == 1


def test_no_key_and_no_certificate_is_ever_logged(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    """Over a life of an authority, with a failure and a loss in it."""
    rotation, api = stored.rotation()
    with caplog.at_level(logging.DEBUG):
        for _ in range(40):
            rotation.tick()
            stored.now += AUTHORITY_LIFE / 40
        stored.empty(names.SCHEDULER_CA)
        api.fail("patch", Busy("later"))
        rotation.tick()
        stored.rotation()[0].tick()
        repr(rotation)

    everything = "\n".join(str(vars(record)) for record in caplog.records)
    assert "certificate renewed" in everything
    assert "certificate authority added" in everything
    for content in stored.contents().values():
        for value in content.values():
            line = value.decode().splitlines()[1]
            assert line not in everything
    assert "PRIVATE" not in everything


def test_what_is_written_is_logged_with_its_end_and_what_to_do(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    rotation, _ = stored.rotation()
    with caplog.at_level(logging.INFO):
        rotation.tick()
        stored.now += LIFE
        rotation.tick()

    assert caplog.messages == ["certificate authority added", *["certificate renewed"] * 4]
    ends = (stored.now + LIFE).isoformat()
    assert [vars(record).get("ends") for record in caplog.records[-2:]] == [ends, ends]


def test_a_kube_scheduler_that_cannot_trust_what_is_made_is_reported(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    """The authority and the server's certificate are lost, while nobody remembers them."""
    first, _ = stored.rotation()
    first.tick()
    stored.empty(names.SCHEDULER_CA)
    stored.empty(names.SCHEDULER_TLS)
    second, _ = stored.rotation()

    with caplog.at_level(logging.WARNING):
        second.tick()

    assert caplog.messages == ["kube-scheduler trusts no current authority"]
    assert second.is_settled
