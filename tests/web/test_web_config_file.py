# SPDX-License-Identifier: Apache-2.0
"""The web config file is read again when it or what it names changes, and only then."""

from __future__ import annotations

import logging
from pathlib import Path

import bcrypt
import pytest

from base.errors import BadInput
from base.followed_file import POLL_SECONDS
from tests.web.certificates import authority, issued
from web.client_access import OPEN
from web.web_config_file import WebConfigFile

HASH = bcrypt.hashpw(b"word", bcrypt.gensalt(4)).decode()
TLS = "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    issued(authority()).write(tmp_path)
    return tmp_path / "web.yaml"


def opened(file: Path, text: str) -> WebConfigFile:
    file.write_text(text)
    return WebConfigFile(file)


def test_an_empty_file_lets_everybody_in(file: Path) -> None:
    assert opened(file, "").current == OPEN


def test_a_look_at_what_has_not_changed_changes_nothing(file: Path) -> None:
    config = opened(file, TLS)
    before = config.current

    assert config.poll(0.0) == POLL_SECONDS
    assert config.current is before


def test_who_has_given_a_password_need_not_be_checked_again_when_certificates_change(
    file: Path,
) -> None:
    config = opened(file, f"{TLS}basic_auth_users: {{a: {HASH}}}")
    before = config.current
    issued(authority()).write(file.parent)

    config.poll(0.0)

    assert config.current.context is not before.context
    assert config.current.passwords is before.passwords is not None


def test_connections_outlive_a_change_that_is_not_about_tls(file: Path) -> None:
    config = opened(file, TLS)
    before = config.current
    file.write_text(f"{TLS}basic_auth_users: {{a: {HASH}}}")

    config.poll(0.0)

    assert config.current.context is before.context is not None
    assert config.current.passwords is not None


def test_what_is_taken_out_of_the_file_no_longer_holds(file: Path) -> None:
    config = opened(file, f"{TLS}basic_auth_users: {{a: {HASH}}}")
    file.write_text("")

    config.poll(0.0)

    assert config.current == OPEN


def test_a_file_that_kubelet_replaces_by_a_link_is_seen(file: Path) -> None:
    """A mounted ConfigMap is a link to a folder that is put in place of another at once."""
    volume = file.parent / "volume"
    for name, text in (("old", "http_server_config: {}"), ("new", TLS)):
        (volume / name).mkdir(parents=True)
        (volume / name / "web.yaml").write_text(text)
        issued(authority()).write(volume / name)
    (volume / "..data").symlink_to("old")
    config = WebConfigFile(volume / "..data" / "web.yaml")
    (volume / "..tmp").symlink_to("new")
    (volume / "..tmp").rename(volume / "..data")

    config.poll(0.0)

    assert config.current.context is not None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b"#" * (2 << 20), "larger than 1 MiB"),
        (b"tls: 1", "'tls' is not a key"),
        (TLS.replace("tls.key", "none").encode(), "cannot read"),
    ],
)
def test_it_cannot_start_with_a_broken_file(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)

    with pytest.raises(BadInput, match=reason):
        WebConfigFile(file)


def test_it_cannot_start_without_the_file(file: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read the web config file .*: No such file"):
        WebConfigFile(file)


def test_what_is_not_done_as_written_is_told_once(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = opened(file, f"basic_auth_users: {{a: {HASH}}}")
    config.poll(0.0)

    notes = [
        record.__dict__["why"] for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert len(notes) == 1
    assert notes[0].startswith("passwords are required without TLS")


def test_a_broken_file_and_its_end_are_told_in_the_log_and_in_metrics(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[bool] = []
    file.write_text(TLS)
    caplog.set_level(logging.INFO)
    config = WebConfigFile(file, report=reports.append)

    states = []
    for text in (TLS, "tls: 1", "tls: 1", TLS):
        file.write_text(text)
        config.poll(0.0)
        states.append(reports[-1])

    assert states == [True, False, False, True]
    assert reports == [True, False, True]
    assert caplog.messages == [
        "web config file loaded",
        "file rejected, previous content kept",
        "file valid again",
    ]


def test_what_is_loaded_is_logged_once_with_how_clients_are_let_in(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = opened(file, f"{TLS}basic_auth_users: {{a: {HASH}, b: {HASH}}}")
    config.poll(0.0)

    (line,) = [each for each in caplog.records if each.message == "web config file loaded"]
    assert (vars(line)["tls"], vars(line)["users"]) == (True, 2)


def test_a_setting_that_is_not_served_is_logged_when_the_file_changes_and_not_with_a_certificate(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = opened(file, f"http_server_config: {{http2: true}}\n{TLS}")
    issued(authority()).write(file.parent)
    config.poll(0.0)

    messages = [each.message for each in caplog.records]
    assert messages.count("web config file loaded") == 2
    assert messages.count("web config setting not served as written") == 1
