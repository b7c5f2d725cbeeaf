# SPDX-License-Identifier: Apache-2.0
"""Which certificates and tokens the doctor reads, and what it makes of those that it cannot."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.settings.agent_settings import AgentSettings
from diagnosis.checks.credential_checks import validity_findings
from diagnosis.facts.certificate_facts import (
    KUBELET,
    BrokenFile,
    Credential,
    Validity,
    read_certificates,
)
from kube.api_errors import Unauthorized
from kube.api_server import ClientIdentity
from kube.official import Configuration
from tests.web import certificates

DAY = 86400.0


@dataclass
class Access:
    """A cluster that is reached by this token; nobody listens there."""

    authorization: str | None
    source: str = "a test"
    configuration: Configuration = field(
        default_factory=lambda: Configuration(host="https://127.0.0.1:1")
    )

    def identity(self) -> ClientIdentity:
        """As configured; none is a token that cannot be read."""
        if self.authorization is None:
            raise Unauthorized("no token")
        return ClientIdentity(authorization=f"Bearer {self.authorization}")

    def renew(self) -> None:
        """Nothing is kept."""


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    return AgentSettings(host_root=tmp_path)


def token(**claims: float) -> str:
    """A JSON web token with these claims; nobody has signed it."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + ".x"


def found(read: tuple[Credential, ...]) -> list[str]:
    """Names of the findings now."""
    validities = [each for each in read if isinstance(each, Validity)]
    return [it.name for each in validities for it in validity_findings(each, time.time())]


def test_a_kubelets_certificate_that_has_ended_is_found(
    settings: AgentSettings, tmp_path: Path
) -> None:
    made = certificates.issued(certificates.authority(days=9), days=-0.1)
    file = tmp_path / KUBELET
    file.parent.mkdir(parents=True)
    file.write_bytes(made.pem + made.key_pem())

    read = read_certificates(settings, None)

    assert [each.where for each in read] == [str(file)]
    assert found(read) == ["certificate-ended"]


def test_a_file_without_a_certificate_is_broken(settings: AgentSettings, tmp_path: Path) -> None:
    file = tmp_path / KUBELET
    file.parent.mkdir(parents=True)
    file.write_text("nothing")

    (read,) = read_certificates(settings, None)

    assert isinstance(read, BrokenFile)


@pytest.mark.parametrize(
    ("begins", "ends", "names"),
    [(-60, 3540, []), (-3600, -1, ["certificate-ended"]), (-3500, 100, ["certificate-ends-soon"])],
)
def test_a_tokens_end_is_read(
    settings: AgentSettings, begins: float, ends: float, names: list[str]
) -> None:
    now = time.time()
    access = Access(token(iat=now + begins, exp=now + ends))

    read = read_certificates(settings, access)

    assert [each.title for each in read] == ["the token of our account"]
    assert found(read) == names


@pytest.mark.parametrize("text", ["opaque", "a.b.c", token(sub=1.0)])
def test_a_token_of_another_kind_has_no_end_to_read(settings: AgentSettings, text: str) -> None:
    assert read_certificates(settings, Access(text)) == ()


def test_credentials_that_cannot_be_had_are_named(settings: AgentSettings) -> None:
    (read,) = read_certificates(settings, Access(None))

    assert isinstance(read, BrokenFile)
    assert read.why == "no token"
