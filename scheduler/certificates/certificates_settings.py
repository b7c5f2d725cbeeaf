# SPDX-License-Identifier: Apache-2.0
"""Settings of the program that makes certificates: each declared once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from api import names
from base.settings.common_settings import kubeconfig, namespace
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from web.address import ADDRESS, Address


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatesSettings:
    """Settings of ``gpuscape scheduler certificates``."""

    namespace: str = namespace(
        names.NAMESPACE,
        "Namespace of the Secrets and of the extender's Service.",
        subject="Cluster",
    )
    kubeconfig: Path | None = kubeconfig()
    listen: Address = setting(
        Address(host="", port=9403), ADDRESS, "Where /livez and /readyz are served."
    )

    log_level: str = log_level()
    log_format: str = log_format()


CERTIFICATES_SETTINGS = ProgramSettings(CertificatesSettings)
