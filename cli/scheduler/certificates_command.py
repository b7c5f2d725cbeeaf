# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler certificates``: settles the settings and hands over to the program."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from cli import options
from cli.program_log import begin_log
from scheduler.certificates.certificates_settings import (
    CERTIFICATES_SETTINGS,
    CertificatesSettings,
)


@click.command(
    cls=options.BySubject,
    epilog="""\b
Secrets of the namespace, which have to be there, if empty:
  gpuscape-scheduler-ca           the authority: ca.crt, ca.key
  gpuscape-scheduler-tls          the extender's certificate: tls.crt, tls.key, ca.crt
  gpuscape-kube-scheduler-tls     kube-scheduler's: the same

\b
A certificate is good for a year and renewed after two thirds of it. The authority is good for ten
years; its successor is trusted from two thirds of that on and signs from five sixths on. Several of
these programs converge on one authority.

SIGTERM and SIGINT end it. Exit codes: 0 ended by a signal, 2 bad input.""",
)
@options.program_settings(CERTIFICATES_SETTINGS)
def command(load: Callable[[], CertificatesSettings]) -> None:
    """Make and renew the certificates of the extender and of kube-scheduler.

    Whatever the Secrets lack is made, what is damaged is made again, and what is good is left.

    Each option can stand in the environment and in a settings file too; flags win over the
    environment, the environment over the file. A name that is not known is an error.
    """
    settings = load()
    begin_log(settings.log_level, settings.log_format)
    from scheduler.certificates.certificates_program import run

    sys.exit(run(settings))
