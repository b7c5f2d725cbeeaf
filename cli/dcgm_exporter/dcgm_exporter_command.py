"""``gpuscape dcgm-exporter``: the agent, told what to do in dcgm-exporter's own words."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import click

from agent.settings.agent_settings import OPTIONS, AgentSettings, Layer, WrittenValue, settle
from base import log as logs
from base.settings.layers import CONFIG_VARIABLE, environment_layer, named_file_layer
from cli.dcgm_exporter import dcgm_flags
from cli.dcgm_exporter.dcgm_flags import FLAGS, DcgmSettings, Flag, Form

log = logging.getLogger(__name__)

_UNASKED: Layer = {
    # the series of dcgm-exporter and no others
    "own-families": WrittenValue(text="none", source="dcgm-exporter"),
    # nothing is written into a cluster: its containers have no rights for that
    "standalone": WrittenValue(text="true", source="dcgm-exporter"),
    # no port but the metrics' is asked for; on the host's network another could be taken
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
        for option in OPTIONS:
            given = [_row(flag) for flag in FLAGS if flag.setting == option.name]
            if given:
                rows.setdefault(option.subject, []).extend(given)
        for subject, listed in rows.items():
            with formatter.section(subject):
                formatter.write_dl(listed)
        with formatter.section("Flags that are taken and give no setting"):
            formatter.write_dl([_row(flag) for flag in FLAGS if not flag.setting])


def _row(flag: Flag) -> tuple[str, str]:
    words = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    unit = " MILLISECONDS" if flag.form is Form.MILLISECONDS else ""
    what = flag.does or f"Gives {flag.setting}."
    return f"{words}{unit}", f"{what}  [env var: {flag.variable}]"


@click.command(
    cls=_Command,
    add_help_option=False,
    options_metavar="[FLAGS]",
    epilog="""\b
Examples:
  gpuscape dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv
  DCGM_EXPORTER_LISTEN=:9400 DCGM_EXPORTER_KUBERNETES=true gpuscape dcgm-exporter

Flags are written as dcgm-exporter takes them: -f FILE or --collectors=FILE, and switches
alone or with =true and =false. What is given, signals and exit codes are described at
gpuscape agent.""",
)
def command(arguments: Sequence[str]) -> None:
    """Run the agent in dcgm-exporter's place: its flags, its variables, its metrics.

    Metrics are served and nothing is written into a cluster. Settings without a flag here are
    given as GPUSCAPE_ variables; those also win over dcgm-exporter's variables.
    """
    if dcgm_flags.asks_for(("h", "help"), arguments):
        click.echo(click.get_current_context().get_help())
        return
    if dcgm_flags.asks_for(("v", "version"), arguments):
        click.echo(f"gpuscape {version('gpuscape')}, in place of dcgm-exporter")
        return
    settings, told = load(arguments, os.environ)
    logs.configure(settings.log_level, settings.log_format)
    for note in told.notes:
        log.warning("dcgm-exporter setting ignored", extra={"why": note})
    from agent.main import run

    sys.exit(run(lambda: load(arguments, os.environ)[0]))


def load(
    arguments: Sequence[str],
    environ: Mapping[str, str],
) -> tuple[AgentSettings, DcgmSettings]:
    """The settings as they stand now, and what dcgm-exporter's part in them was.

    Its flags win over GPUSCAPE_ variables, these over its variables, and these over the
    settings file. Raises BadInput that names the flag, variable, or file, line and key.
    """
    told = dcgm_flags.read(arguments, environ)
    file = WrittenValue(text=environ.get(CONFIG_VARIABLE, ""), source=CONFIG_VARIABLE)
    layers = [
        told.flags,
        environment_layer(environ),
        told.environment,
        named_file_layer(file, Path.read_text),
        told.untold,
        _UNASKED,
    ]
    return settle(layers), told
