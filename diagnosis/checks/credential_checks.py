# SPDX-License-Identifier: Apache-2.0
"""Certificates and tokens: whether they hold, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from diagnosis.facts.certificate_facts import BrokenFile, Validity
from diagnosis.facts.local_facts import LocalFacts
from diagnosis.finding import DoctorFinding, FindingKind, FindingSeverity, finding

CERTIFICATE_ENDED: Final = FindingKind(
    name="certificate-ended",
    severity=FindingSeverity.ERROR,
    cause="A certificate or token has expired: connections with it are refused.",
    fix="Renew it; gpuscape reads its files again by itself.",
    page="doctor.md#certificates",
)
CERTIFICATE_ENDS: Final = FindingKind(
    name="certificate-ends-soon",
    severity=FindingSeverity.WARNING,
    cause="A certificate ends soon, and it has not been renewed in time.",
    fix="Renew it, and find out why it was not renewed by itself.",
    page="doctor.md#certificates",
)
CERTIFICATE_EARLY: Final = FindingKind(
    name="certificate-not-yet-valid",
    severity=FindingSeverity.ERROR,
    cause="A certificate or token is not valid yet by this node's clock.",
    fix="Correct the clock of this node, or of the machine that issued the certificate.",
    page="doctor.md#clocks",
)
CERTIFICATE_BROKEN: Final = FindingKind(
    name="certificate-unusable",
    severity=FindingSeverity.ERROR,
    cause="A file with certificates or settings of TLS cannot be used.",
    fix="Correct what the message names; the file is read again by itself.",
    page="web-config.md",
)

KINDS: Final = (CERTIFICATE_ENDED, CERTIFICATE_ENDS, CERTIFICATE_EARLY, CERTIFICATE_BROKEN)
SOON_RATIO: Final = 0.1
"""Part of a certificate's whole time that counts as soon: renewal by itself comes before."""
SOON_SECONDS: Final = 30 * 86400.0
"""Time that counts as soon at most, whatever the whole time is."""
_DAY: Final = 86400.0
_EARLY_SECONDS: Final = 60.0
"""Difference between two clocks that is tolerated."""


def check_certificates(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether certificates and tokens hold."""
    for credential in facts.certificates:
        if isinstance(credential, BrokenFile):
            yield finding(
                CERTIFICATE_BROKEN, credential.title, f"{credential.where}: {credential.why}"
            )
        else:
            yield from validity_findings(credential, facts.now)


CHECKS: Final = (check_certificates,)


def validity_findings(validity: Validity, now: float) -> Iterator[DoctorFinding]:
    """The finding about the validity of a certificate or token, if any; ``now`` is Unix time."""
    remaining = validity.ends - now
    on = datetime.fromtimestamp(validity.ends, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if remaining <= 0:
        yield finding(CERTIFICATE_ENDED, validity.title, f"{validity.where} ended on {on}")
    elif validity.begins - now > _EARLY_SECONDS:
        begins = datetime.fromtimestamp(validity.begins, UTC).strftime("%Y-%m-%d %H:%M UTC")
        yield finding(
            CERTIFICATE_EARLY, validity.title, f"{validity.where} is valid from {begins} on"
        )
    elif remaining < min(SOON_RATIO * (validity.ends - validity.begins), SOON_SECONDS):
        days = f"{remaining / _DAY:.0f} days" if remaining >= _DAY else "less than a day"
        yield finding(CERTIFICATE_ENDS, validity.title, f"{validity.where} ends on {on}, in {days}")
