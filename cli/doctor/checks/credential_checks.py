# SPDX-License-Identifier: Apache-2.0
"""Certificates and tokens: whether they hold, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from cli.doctor.facts.certificate_facts import BrokenFile, Validity
from cli.doctor.facts.here_facts import HereFacts
from cli.doctor.finding import DoctorFinding, FindingKind, FindingSeverity, found

CERTIFICATE_ENDED: Final = FindingKind(
    name="certificate-ended",
    severity=FindingSeverity.ERROR,
    cause="A certificate or token has ended: whoever checks it refuses the connection.",
    fix="Renew it; files that gpuscape has are read again by themselves.",
    page="doctor.md#certificates",
)
CERTIFICATE_ENDS: Final = FindingKind(
    name="certificate-ends-soon",
    severity=FindingSeverity.WARNING,
    cause="A certificate ends soon, and whatever should have renewed it by now has not.",
    fix="Renew it, and see why that does not happen by itself.",
    page="doctor.md#certificates",
)
CERTIFICATE_EARLY: Final = FindingKind(
    name="certificate-not-yet-valid",
    severity=FindingSeverity.ERROR,
    cause="A certificate or token is not valid yet by this node's clock.",
    fix="Set the clock of this node, or of whoever made the certificate.",
    page="doctor.md#clocks",
)
CERTIFICATE_BROKEN: Final = FindingKind(
    name="certificate-unusable",
    severity=FindingSeverity.ERROR,
    cause="A file with certificates or settings of TLS cannot be used.",
    fix="Mend what the sentence names; the file is read again by itself.",
    page="web-config.md",
)

KINDS: Final = (CERTIFICATE_ENDED, CERTIFICATE_ENDS, CERTIFICATE_EARLY, CERTIFICATE_BROKEN)
SOON_RATIO: Final = 0.1
"""What renews by itself does so before less than this of the time is left."""
SOON_SECONDS: Final = 30 * 86400.0
"""The most that counts as soon, whatever the whole time is."""
_DAY: Final = 86400.0
_EARLY_SECONDS: Final = 60.0
"""Clocks differ."""


def certificates(facts: HereFacts) -> Iterator[DoctorFinding]:
    """Whether certificates and tokens hold."""
    for each in facts.certificates:
        if isinstance(each, BrokenFile):
            yield found(CERTIFICATE_BROKEN, each.what, f"{each.where}: {each.why}")
        else:
            yield from validity_findings(each, facts.now)


CHECKS: Final = (certificates,)


def validity_findings(each: Validity, now: float) -> Iterator[DoctorFinding]:
    """About one certificate or token; ``now`` is Unix time."""
    left = each.ends - now
    on = datetime.fromtimestamp(each.ends, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if left <= 0:
        yield found(CERTIFICATE_ENDED, each.what, f"{each.where} ended on {on}")
    elif each.begins - now > _EARLY_SECONDS:
        begins = datetime.fromtimestamp(each.begins, UTC).strftime("%Y-%m-%d %H:%M UTC")
        yield found(CERTIFICATE_EARLY, each.what, f"{each.where} is valid from {begins} on")
    elif left < min(SOON_RATIO * (each.ends - each.begins), SOON_SECONDS):
        days = f"{left / _DAY:.0f} days" if left >= _DAY else "less than a day"
        yield found(CERTIFICATE_ENDS, each.what, f"{each.where} ends on {on}, in {days}")
