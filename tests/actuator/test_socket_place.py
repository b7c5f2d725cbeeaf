# SPDX-License-Identifier: Apache-2.0
"""The actuator's socket is its own: what else is there, or who else may write there, stops it."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actuator.service.socket_place import listening_unix_socket
from api.actuator.actuator_client import NoAnswer, ask_actuator
from api.actuator.actuator_messages import StateRequest
from base.errors import BadInput, Transient


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path: pytest's own may be too long for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def modes(path: Path) -> tuple[int, int]:
    """Of the folder and of the socket."""
    return stat.S_IMODE(path.parent.stat().st_mode), stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("open_to_all", "wanted"), [(False, (0o700, 0o600)), (True, (0o711, 0o666))]
)
def test_nobody_else_connects_unless_the_server_looks_who_it_is(
    place: Path, open_to_all: bool, wanted: tuple[int, int]
) -> None:
    """Nobody else may write to the folder in any case; at the end the socket is gone."""
    path = place / "run" / "a.sock"

    with listening_unix_socket(path, open_to_all=open_to_all) as served:
        assert modes(path) == wanted
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            served.listener.accept()[0].close()

    assert not path.exists()


def test_the_socket_of_a_process_that_died_is_no_obstacle(place: Path) -> None:
    """It is put in its place."""
    path = place / "run" / "a.sock"
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as died:
        died.bind(str(path))

    with listening_unix_socket(path, open_to_all=False), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def link_to_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.with_name("file").write_text("mine", "utf-8")
    path.symlink_to(path.with_name("file"))


def link_to_socket(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path.with_name("other.sock")))
    path.symlink_to(path.with_name("other.sock"))


def a_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_text("mine", "utf-8")


def a_pipe(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    os.mkfifo(path)


def linked_folder(path: Path) -> None:
    path.parent.with_name("elsewhere").mkdir(mode=0o700)
    path.parent.symlink_to("elsewhere")


def file_for_folder(path: Path) -> None:
    path.parent.write_text("mine", "utf-8")


def open_folder(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)


def folder_of_a_group(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o770)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (link_to_file, "a link or another file"),
        (link_to_socket, "a link or another file"),
        (a_file, "a link or another file"),
        (a_pipe, "a link or another file"),
        (linked_folder, "a link or another file"),
        (file_for_folder, "a link or another file"),
        (open_folder, "others may write to it; run chmod go-w"),
        (folder_of_a_group, "others may write to it; run chmod go-w"),
    ],
)
def test_it_does_not_start_where_others_could_take_its_place(
    place: Path, prepare: Callable[[Path], None], reason: str
) -> None:
    """Nothing of it is removed or changed."""
    path = place / "run" / "a.sock"
    prepare(path)
    before = {each: each.lstat() for each in place.rglob("*")}

    with pytest.raises(BadInput, match=reason), listening_unix_socket(path, open_to_all=True):
        pass

    assert {each: each.lstat().st_mode for each in place.rglob("*")} == {
        each: found.st_mode for each, found in before.items()
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_folder_of_another_user_is_refused(place: Path) -> None:
    """He could do what he likes in it."""
    (place / "run").mkdir(mode=0o700)
    os.chown(place / "run", 1234, 0)

    with (
        pytest.raises(BadInput, match="another user, 1234"),
        listening_unix_socket(place / "run" / "a.sock", open_to_all=False),
    ):
        pass


def test_one_process_serves_it(place: Path) -> None:
    """The second is told; the first one's socket stays."""
    path = place / "run" / "a.sock"

    with listening_unix_socket(path, open_to_all=False):
        with (
            pytest.raises(Transient, match="another actuator serves it"),
            listening_unix_socket(path, open_to_all=False),
        ):
            pass
        assert path.exists()


def test_a_path_that_no_client_could_use_is_refused(place: Path) -> None:
    """An address has room for so many bytes."""
    path = place / ("x" * 100) / "a.sock"

    with (
        pytest.raises(BadInput, match="longer than 107 bytes"),
        listening_unix_socket(path, open_to_all=False),
    ):
        pass
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can serve as another user")
def test_the_agent_does_not_believe_another_user_s_socket(place: Path) -> None:
    """Who could put it there is not who may change GPUs."""
    place.chmod(0o777)
    path = place / "a.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        os.seteuid(1234)
        try:
            listener.bind(str(path))
            listener.listen()
        finally:
            os.seteuid(0)

        with pytest.raises(NoAnswer, match="user 1234 serves it"):
            ask_actuator(path, StateRequest())


def test_where_nobody_serves_there_is_no_answer(place: Path) -> None:
    """Said with the path."""
    with pytest.raises(NoAnswer, match=r"none\.sock: No such file"):
        ask_actuator(place / "none.sock", StateRequest())


def answers(path: Path, listener: socket.socket) -> bool:
    """Whether a connection at the path comes to this listener."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        listener.accept()[0].close()
    return True


def other_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))


def removed_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def other_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    path.parent.mkdir(mode=0o700)


@pytest.mark.parametrize("spoil", [Path.unlink, other_socket, removed_folder, other_folder])
def test_a_socket_that_is_gone_or_another_is_noticed_and_bound_anew(
    place: Path, spoil: Callable[[Path], object]
) -> None:
    path = place / "run" / "a.sock"
    with listening_unix_socket(path, open_to_all=False) as served:
        assert served.why_unreachable() is None
        spoil(path)
        assert served.why_unreachable() is not None
        served.bind_again().close()
        assert served.why_unreachable() is None
        assert answers(path, served.listener)
        assert modes(path) == (0o700, 0o600)
        with (
            pytest.raises(Transient, match="another actuator serves it"),
            listening_unix_socket(path, open_to_all=False),
        ):
            pass
    assert not path.exists()


def test_a_file_in_the_socket_s_place_stays_and_the_next_try_without_it_succeeds(
    place: Path,
) -> None:
    path = place / "run" / "a.sock"
    with listening_unix_socket(path, open_to_all=False) as served:
        path.unlink()
        path.write_text("somebody's")
        for _ in range(2):
            with pytest.raises(BadInput, match="another file is in its place; remove it"):
                served.bind_again()
        assert path.read_text() == "somebody's"
        path.unlink()
        served.bind_again().close()
        assert answers(path, served.listener)


def test_a_socket_of_another_process_is_not_removed_at_the_end(place: Path) -> None:
    path = place / "run" / "a.sock"
    with listening_unix_socket(path, open_to_all=False):
        other_socket(path)
    assert path.is_socket()
