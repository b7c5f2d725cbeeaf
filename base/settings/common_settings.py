# SPDX-License-Identifier: Apache-2.0
"""Settings of kinds that every program has, declared in few words."""

from __future__ import annotations

from pathlib import Path

from base.settings import setting_kinds as kinds
from base.settings.option import setting


def flag(help: str, *, subject: str = "") -> bool:  # noqa: A002  # the word that click uses too
    """Declare a switch that is off by default."""
    return setting(False, kinds.FLAG, help, subject=subject)


def optional_path(
    help: str,  # noqa: A002
    *,
    subject: str = "",
    unset: str = "",
    variables: tuple[str, ...] = (),
) -> Path | None:
    """Declare a file or folder; none by default."""
    return setting(None, kinds.PATH, help, subject=subject, unset=unset, variables=variables)


def duration(
    default: float,
    least: str,
    help: str,  # noqa: A002
    *,
    subject: str = "",
    name: str = "",
) -> float:
    """Declare a time in seconds, at least ``least`` and at most a day."""
    return setting(default, kinds.duration_kind(least), help, subject=subject, name=name)


def kubeconfig(
    *, unset: str = "the pod's own token, else kubectl's file", subject: str = ""
) -> Path | None:
    """Declare how to reach the cluster."""
    help_text = "How to reach the cluster."
    return optional_path(help_text, unset=unset, subject=subject, variables=("KUBECONFIG",))


def namespace(default: str, help: str, *, subject: str = "") -> str:  # noqa: A002
    """Declare the namespace of the program's objects; that of its pod where nobody sets it."""
    kind = kinds.text_kind("NAME")
    return setting(default, kind, help, subject=subject, variables=("POD_NAMESPACE",))


def pod_name(help: str, *, unset: str) -> str | None:  # noqa: A002
    """Declare the name of the program's pod, or what takes its place."""
    return setting(None, kinds.text_kind("NAME"), help, unset=unset, variables=("POD_NAME",))
