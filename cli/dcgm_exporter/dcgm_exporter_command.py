# SPDX-License-Identifier: Apache-2.0
"""``gpuscape dcgm-exporter``: the agent, configured by dcgm-exporter's flags and variables."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import click

from agent.process_control import under_signals
from agent.settings.agent_settings import AGENT_SETTINGS, AgentSettings
from base import log as logs
from base.settings.layers import (
    CONFIG_VARIABLE,
    Layer,
    WrittenValue,
    environment_layer,
    named_file_layer,
)
from cli import terminal
from cli.dcgm_exporter import dcgm_arguments
from cli.dcgm_exporter.dcgm_arguments import DcgmSettings
from cli.dcgm_exporter.dcgm_flags import CONFIG_FILE, FLAGS, OF_DCGM, Flag, Form

log = logging.getLogger(__name__)

_DEFAULTS: Layer = {
    # the series of dcgm-exporter and no others
    "own-families": WrittenValue(text="none", source="dcgm-exporter"),
    # nothing is written into a cluster: its containers have no rights for that
    "standalone": WrittenValue(text="true", source="dcgm-exporter"),
    # no port but the metrics' is configured; on the host's network another could be taken
    "probe-listen": WrittenValue(text="127.0.0.1:0", source="dcgm-exporter"),
}


class _Command(click.Command):
    """Leaves all arguments to the command: click's grammar is not Go's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["arguments"] = tuple(args)
        return []

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        rows: dict[str, list[tuple[str, str]]] = {}
        for option in AGENT_SETTINGS.options:
            setting_it = [_row(flag) for flag in FLAGS if flag.setting == option.name]
            if setting_it:
                rows.setdefault(option.subject, []).extend(setting_it)
        for subject, listed in rows.items():
            with formatter.section(subject):
                formatter.write_dl(listed)
        with formatter.section("Configuration"):
            formatter.write_dl([_row(CONFIG_FILE)])
        idle = [flag for flag in FLAGS if not flag.setting and flag is not CONFIG_FILE]
        for subject, of_dcgm in (("DCGM's", True), ("Other", False)):
            listed = [_row(flag) for flag in idle if (flag.does in OF_DCGM) is of_dcgm]
            with formatter.section(f"{subject} flags that are accepted and set nothing"):
                formatter.write_dl(listed)


def _row(flag: Flag) -> tuple[str, str]:
    words = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    unit = " MILLISECONDS" if flag.form is Form.MILLISECONDS else ""
    effect = flag.does or f"Sets {flag.setting}."
    return f"{words}{unit}", f"{effect}  [env var: {flag.variable}]"


@click.command(
    cls=_Command,
    add_help_option=False,
    options_metavar="[FLAGS]",
    epilog="""\b
Examples:
  gpuscape dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv
  DCGM_EXPORTER_LISTEN=:9400 DCGM_EXPORTER_KUBERNETES=true gpuscape dcgm-exporter

Flags are written as dcgm-exporter takes them: -f FILE or --collectors=FILE, and switches
alone or with =true and =false. The settings, signals and exit codes are described at
gpuscape agent.""",
)
def command(arguments: Sequence[str]) -> None:
    """Run the agent in dcgm-exporter's place: its flags, its variables, its metrics.

    Metrics are served and nothing is written into a cluster. Settings without a flag here are
    set by GPUSCAPE_ variables; those also win over dcgm-exporter's variables.
    """
    if dcgm_arguments.has_flag(("h", "help"), arguments):
        terminal.print_document(click.get_current_context().get_help())
        return
    if dcgm_arguments.has_flag(("v", "version"), arguments):
        terminal.note(f"gpuscape {version('gpuscape')}, in place of dcgm-exporter")
        return
    with under_signals() as control:
        settings, dcgm = load_dcgm_settings(arguments, os.environ)
        logs.configure(settings.log_level, settings.log_format)
        for note in dcgm.notes:
            log.warning("dcgm-exporter setting ignored", extra={"why": note})
        from agent.agent_program import run

        control.leave(run(lambda: load_dcgm_settings(arguments, os.environ)[0], control))


def load_dcgm_settings(
    arguments: Sequence[str],
    environ: Mapping[str, str],
) -> tuple[AgentSettings, DcgmSettings]:
    """The settings as they stand now, and dcgm-exporter's part in them.

    Its flags win over GPUSCAPE_ variables, these over its variables, these over its YAML file, and
    that over the settings file. Raises BadInput that names the flag, variable, or file, line and
    key.
    """
    dcgm = dcgm_arguments.read_dcgm_arguments(arguments, environ)
    file = WrittenValue(text=environ.get(CONFIG_VARIABLE, ""), source=CONFIG_VARIABLE)
    layers = [
        dcgm.flags,
        environment_layer(environ, AGENT_SETTINGS.options),
        dcgm.environment,
        dcgm.configuration,
        named_file_layer(file, AGENT_SETTINGS.options),
        dcgm.fallback,
        _DEFAULTS,
    ]
    return AGENT_SETTINGS.settle(layers), dcgm
