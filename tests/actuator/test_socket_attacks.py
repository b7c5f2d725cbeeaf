# SPDX-License-Identifier: Apache-2.0
"""What is sent to the actuator's socket by whoever may not, or means no good, is refused.

One real program and one real socket for all. After each attack GPUs and journal are as they were,
and the next proper request is served.
"""

from __future__ import annotations

import array
import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from actuator.service.actuator_server import MOST_CLIENTS
from api.actuator.actuator_messages import (
    MOST_REQUEST_BYTES,
    ActuatorRefusal,
    ChangeAnswer,
    RefusalAnswer,
    RequestedInstance,
    RequestedLayout,
    RestoreRequest,
    StateAnswer,
    encode_message,
)
from api.mig_outcome import Outcome
from tests.actuator.actuator_process import (
    SEVENTHS,
    THIRDS,
    ActuatorProcess,
    answered,
    on_a_node,
    until,
)

ALLOWED, STRANGER = 4242, 4343
"""User ids: one that may ask, and one that may not."""
GPU = "GPU-00000000-0000-0000-0000-000000000000"

real_users = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


@pytest.fixture(scope="module")
def actuator() -> Iterator[ActuatorProcess]:
    """A node on which one change was made, and one that another user may ask as well."""
    with on_a_node("--peers", str(ALLOWED)) as ready:
        first = ready.ask(ready.apply("the-first-change", THIRDS))
        assert first == ready.applied("the-first-change")
        yield ready


@pytest.fixture(autouse=True)
def nothing_is_changed(actuator: ActuatorProcess) -> Iterator[None]:
    """By any of these tests; and the next request is answered."""
    check = actuator.unchanged()
    yield
    check()
    found = actuator.state()
    assert (found.running, found.open, found.problem) == (None, None, "")


def applied(**more: object) -> dict[str, object]:
    """A request for a layout that could be had at once; ``more`` are its keys, or others."""
    layout = {"mig": True, "instances": [{"profile": "1g.5gb", "compute": [1]}]}
    request = {
        "verb": "apply",
        "v": 2,
        "change": "an-attack-0001",
        "origin": "an attack",
        "desired": {GPU: layout},
    }
    return request | more


def line(content: object) -> bytes:
    """As JSON."""
    return msgspec.json.encode(content) + b"\n"


def wanted(**instance: object) -> bytes:
    """With one instance like this."""
    whole = {"profile": "1g.5gb", "compute": [1]} | instance
    return line(applied(desired={GPU: {"mig": True, "instances": [whole]}}))


NESTED = b"[" * 100_000
RAW = line(applied())

MALFORMED = {
    "garbage": bytes(each % 251 for each in range(11, 3000) if each % 251 != 10) + b"\n",
    "an empty line": b"\n",
    "HTTP": b"GET /state HTTP/1.1\n",
    "a list": b"[]\n",
    "a number": b"1\n",
    "bytes that are no UTF-8": RAW.replace(b"an attack", b"\xff\xfe"),
    "half a character": RAW.replace(b"an attack", rb"\ud800"),
    "a NUL": RAW.replace(b"an attack", b"\\u0000"),
    "nested deeply": NESTED + b"\n",
    "nested deeply in an unknown key": RAW.replace(b'"v":2', b'"v":2,"x":' + NESTED),
    "nested deeply in a known key": RAW.replace(
        b'"desired":', b'"desired":' + b'{"GPU-0":' * 20_000
    ),
    "no verb": line({"v": 2}),
    "another verb": line({"verb": "reset", "v": 2}),
    "a verb that is no text": line({"verb": ["apply"], "v": 2}),
    "an unknown key": line(applied(force=True)),
    "an unknown key in an instance": wanted(force=True),
    "state with more": line({"verb": "state", "v": 2, "desired": {}}),
    "a version that is text": line(applied(v="1")),
    "no version": line({"verb": "state"}),
    "cut off": RAW[: len(RAW) // 2],
    "cut off before its end": RAW[:-1],
    "two requests": RAW + RAW,
    "something behind it": RAW + b" ",
    "NaN": wanted(start=0).replace(b'"start":0', b'"start":NaN'),
    "infinity": wanted(start=0).replace(b'"start":0', b'"start":1e999'),
    "a place below zero": wanted(start=-1),
    "a place far off": wanted(start=1 << 40),
    "a number without end": wanted(start=0).replace(b'"start":0', b'"start":' + b"9" * 5000),
    "slices below zero": wanted(compute=[-1]),
    "no slices": wanted(compute=[]),
    "a profile that is none": wanted(profile="../../etc"),
    "a profile with a line's end": wanted(profile="1g.5gb\n"),
    "65 instances": line(
        applied(
            desired={GPU: {"mig": True, "instances": [{"profile": "1g.5gb", "compute": [1]}] * 65}}
        )
    ),
    "65 GPUs": line(applied(desired={f"GPU-{each}": {"mig": False} for each in range(65)})),
    "no GPU": line(applied(desired={})),
    "a GPU by a path": line(applied(desired={"../GPU-0": {"mig": False}})),
    "instances with MIG off": line(
        applied(desired={GPU: {"mig": False, "instances": [{"profile": "1g.5gb", "compute": [1]}]}})
    ),
    "a name with a path": line(applied(change="../../../etc/x")),
    "no name": line(applied(change="")),
    "a name of 1 MB's tenth": line(applied(change="x" * 100_000)),
    "a line in the log": line(applied(origin="x\n2026-01-01 INFO MIG change ended")),
    "an escape sequence": line(applied(origin="\x1b[2J")),
    "a pod's name with a line's end": line(
        applied(pods=[{"gpu": GPU, "instance": 1, "kind": "pod", "name": "a/b\nc"}])
    ),
    "a process as a pod": line(
        applied(pods=[{"gpu": GPU, "instance": 1, "kind": "process", "name": "a/b"}])
    ),
    "a strategy that is none": line(applied(strategy="all")),
    "a restore of everything": line({"verb": "restore", "v": 2, "change": "*"}),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_request_is_refused(actuator: ActuatorProcess, what: str) -> None:
    """With the reason."""
    answer = actuator.sent(MALFORMED[what])

    assert isinstance(answer, RefusalAnswer)
    assert answer.refusal is ActuatorRefusal.MALFORMED
    assert answer.reason


@pytest.mark.parametrize("version", [0, 1, -1, 1 << 62])
def test_other_versions_are_named(actuator: ActuatorProcess, version: int) -> None:
    """Whatever else is in the request: another version may mean something else by it."""
    answer = actuator.sent(line(applied(v=version, force=True)))

    assert isinstance(answer, RefusalAnswer)
    assert answer.refusal is ActuatorRefusal.VERSION


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("size", [MOST_REQUEST_BYTES, 20 * MOST_REQUEST_BYTES])
def test_what_is_too_large_is_refused_before_it_is_read(
    actuator: ActuatorProcess, size: int, end: bytes
) -> None:
    """Twenty times as much is not kept either."""
    answer = actuator.sent(b" " * size + end)

    assert isinstance(answer, RefusalAnswer)
    assert answer.refusal is ActuatorRefusal.TOO_LARGE


def test_what_is_just_small_enough_is_read(actuator: ActuatorProcess) -> None:
    """The bound is where it is said to be."""
    state = b'{"verb":"state","v":2}'
    padded = state + b" " * (MOST_REQUEST_BYTES - 1 - len(state)) + b"\n"

    assert isinstance(actuator.sent(padded), StateAnswer)


@pytest.mark.parametrize("what", ["a GPU that is not there", "64 instances", "no such profile"])
def test_what_no_gpu_has_is_refused_by_the_planner(actuator: ActuatorProcess, what: str) -> None:
    """It is a proper request: the answer says what is wrong with it."""
    one = RequestedInstance(profile="1g.5gb", compute=(1,))
    request = {
        "a GPU that is not there": msgspec.structs.replace(
            actuator.apply("an-attack-0002", SEVENTHS), desired={GPU: RequestedLayout(mig=False)}
        ),
        "64 instances": actuator.apply(
            "an-attack-0002", RequestedLayout(mig=True, instances=(one,) * 64)
        ),
        "no such profile": actuator.apply(
            "an-attack-0002",
            RequestedLayout(
                mig=True, instances=(msgspec.structs.replace(one, profile="9g.999gb"),)
            ),
        ),
    }[what]

    answer = actuator.ask(request)

    assert isinstance(answer, ChangeAnswer)
    assert answer.outcome is Outcome.REFUSED
    assert answer.reason


def test_a_change_that_has_ended_is_answered_and_not_made_again(
    actuator: ActuatorProcess,
) -> None:
    """Whoever sends it a second time, and by whatever verb."""
    request = actuator.apply("the-first-change", THIRDS)

    answers = [
        actuator.ask(request),
        actuator.ask(RestoreRequest(change="the-first-change")),
        actuator.sent(encode_message(request) + b"\n"),
    ]

    again = actuator.applied("the-first-change", again=True)
    assert answers == [again] * 3


@pytest.mark.parametrize("what", ["layout", "origin", "gpu"])
def test_the_name_of_a_change_is_not_used_for_another(actuator: ActuatorProcess, what: str) -> None:
    """A name that was heard somewhere gives nothing."""
    request = actuator.apply("the-first-change", THIRDS)
    other = {
        "layout": actuator.apply("the-first-change", SEVENTHS),
        "origin": msgspec.structs.replace(request, origin="somebody else"),
        "gpu": msgspec.structs.replace(request, desired={GPU: THIRDS}),
    }[what]

    answer = actuator.ask(other)

    assert isinstance(answer, RefusalAnswer)
    assert answer.refusal is ActuatorRefusal.CONFLICT


def as_user(uid: int, call: Callable[[], object]) -> object:
    """Do it with this effective user id, which is the one that the kernel reports."""
    os.seteuid(uid)
    try:
        return call()
    finally:
        os.seteuid(0)


@real_users
@pytest.mark.parametrize("request_", [RAW, line({"verb": "state", "v": 2}), b"", b"x" * 100])
def test_another_user_is_refused_whatever_is_asked(
    actuator: ActuatorProcess, request_: bytes
) -> None:
    """By the kernel's word on who it is, before a byte is read."""
    answer = as_user(STRANGER, lambda: actuator.sent(request_))

    assert answer == RefusalAnswer(
        refusal=ActuatorRefusal.PEER, reason=f"user {STRANGER} may not ask", change=None
    )


@real_users
def test_a_user_that_was_named_is_served(actuator: ActuatorProcess) -> None:
    """And is no stranger to the socket's permissions either."""
    assert isinstance(
        as_user(ALLOWED, lambda: actuator.sent(line({"verb": "state", "v": 2}))), (StateAnswer)
    )


@real_users
def test_others_can_neither_replace_the_socket_nor_put_one_next_to_it(
    actuator: ActuatorProcess,
) -> None:
    """Its folder is the actuator's alone."""
    for change in (
        actuator.path.unlink,
        lambda: actuator.path.with_name("b.sock").symlink_to("a.sock"),
        lambda: actuator.path.rename(actuator.path.with_name("c.sock")),
    ):
        with pytest.raises(PermissionError):
            as_user(ALLOWED, change)


def test_one_who_is_slow_has_five_seconds_and_holds_nobody_up(actuator: ActuatorProcess) -> None:
    """Whether something comes now and then, or nothing at all."""
    with actuator.connected() as dripping, actuator.connected() as silent:
        end = time.monotonic() + 60
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < end:
                dripping.sendall(b"{")
                actuator.state()
                time.sleep(0.3)
        answers = [answered(dripping), answered(silent)]

    for one in answers:
        assert isinstance(one, RefusalAnswer)
        assert one.refusal is ActuatorRefusal.SLOW


def test_very_many_connections_lock_nobody_out(actuator: ActuatorProcess) -> None:
    """Those that say nothing make room, the oldest first; no descriptor is lost."""
    files = Path(f"/proc/{actuator.process.pid}/fd")
    before = len(list(files.iterdir()))
    with contextlib.ExitStack() as all_of_them:
        made = []
        for number in range(300):
            made.append(all_of_them.enter_context(actuator.connected()))
            if number % 30 == 0:
                actuator.state()
        until(lambda: len(list(files.iterdir())) <= before + MOST_CLIENTS)
        first = answered(made[0])
        actuator.state()

    assert isinstance(first, RefusalAnswer)
    assert first.refusal is ActuatorRefusal.CROWDED
    # others of its files are open for a moment, now or when they were counted
    until(lambda: len(list(files.iterdir())) <= before + MOST_CLIENTS)


def test_one_who_leaves_at_once_or_never_reads_is_no_trouble(actuator: ActuatorProcess) -> None:
    """In the middle of a request, after it, and without taking the answer."""
    for data in (b"", b"{", line({"verb": "state", "v": 2}), RAW[:-1]):
        actuator.connected().close()
        with actuator.connected() as connection:
            connection.sendall(data)
    with actuator.connected() as deaf:
        deaf.sendall(line({"verb": "state", "v": 2}))
        actuator.state()


def test_descriptors_that_are_sent_along_are_not_kept(actuator: ActuatorProcess) -> None:
    """Nor do they stay open in the actuator."""
    files = Path(f"/proc/{actuator.process.pid}/fd")
    before = len(list(files.iterdir()))
    with actuator.connected() as connection, Path("/dev/null").open() as sent:
        rights = array.array("i", [sent.fileno()] * 100)
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        connection.sendmsg([line({"verb": "state", "v": 2})], passed)
        assert isinstance(answered(connection), StateAnswer)

    until(lambda: len(list(files.iterdir())) < before + len(rights) // 2)


@contextlib.contextmanager
def planted(folder: Path, name: str, what: str) -> Iterator[None]:
    """Something else in the place of a file of the journal, until the block ends."""
    place, kept = folder / name, folder.parent / "kept"
    if place.exists():
        place.rename(kept)
    outside = folder.parent / "outside"
    outside.write_bytes(b"mine")
    match what:
        case "link":
            place.symlink_to(outside)
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(place))
        case "garbage":
            place.write_bytes(b"\x00\xff{")
        case "newer":
            place.write_bytes(b'{"v":2}')
        case "endless":
            place.write_bytes(b" " * (1 << 25))
    try:
        yield
        assert outside.read_bytes() == b"mine"
    finally:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        if kept.exists():
            kept.rename(place)


@pytest.mark.parametrize(
    "what", ["link", "pipe", "folder", "socket", "garbage", "newer", "endless"]
)
def test_a_journal_with_something_else_in_it_stops_every_change(
    actuator: ActuatorProcess, what: str
) -> None:
    """Nothing is followed, waited for or guessed; when it is gone all is as before."""
    with planted(actuator.on.journal, "change.json", what):
        check = actuator.unchanged()
        answer = actuator.ask(actuator.apply("a-change-to-refuse", SEVENTHS))
        state = actuator.state()
        check()

    assert isinstance(answer, RefusalAnswer)
    assert answer.refusal is ActuatorRefusal.JOURNAL
    assert "change.json" in answer.reason
    assert "change.json" in state.problem


@pytest.mark.parametrize("name", ["history.json", "lock", "verified.json"])
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_no_file_of_the_journal_is_followed_or_waited_for(
    actuator: ActuatorProcess, name: str, what: str
) -> None:
    """Also where it would only be written to."""
    with planted(actuator.on.journal, name, what):
        check = actuator.unchanged()
        answer = actuator.ask(actuator.apply("a-change-to-refuse", SEVENTHS))
        check()

    assert isinstance(answer, RefusalAnswer)
    assert answer.refusal is ActuatorRefusal.JOURNAL
    assert name in answer.reason


def test_a_journal_that_others_may_write_to_stops_every_change(actuator: ActuatorProcess) -> None:
    """Whoever writes there decides what GPUs are rolled back to."""
    actuator.on.journal.chmod(0o770)
    try:
        answer = actuator.ask(actuator.apply("a-change-to-refuse", SEVENTHS))
    finally:
        actuator.on.journal.chmod(0o700)

    assert isinstance(answer, RefusalAnswer)
    assert answer.refusal is ActuatorRefusal.JOURNAL
