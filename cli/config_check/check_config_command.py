# SPDX-License-Identifier: Apache-2.0
"""``gpuscape check-config``: whether configuration files are right, and what they mean."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from agent.settings.agent_settings import AgentSettings
from agent.settings.labels_from_settings import label_settings
from agent.single_reading import take_snapshot
from base.errors import BadInput
from base.files import read_bytes, read_stdin
from cli import options
from cli.config_check import check_report
from cli.config_check.checked_config import CheckedConfig, UncheckedText
from cli.config_check.config_kinds import ConfigKind, likeliest_kind
from cli.config_check.config_texts import ConfigText, config_texts
from cli.options import Load
from labelers.compose import decide_labels
from labelers.label_settings import PluginConfig

if TYPE_CHECKING:
    from cli.config_check.config_checks import MachineLabels

STDIN: Final = "-"
_REFUSED: Final = 1
_UNKNOWN: Final = 2


@click.command(
    epilog="""\b
Examples:
  gpuscape check-config plugin.yaml
  gpuscape check-config --simulate dgx-a100 plugin.yaml   and what a DGX A100 would offer
  gpuscape check-config configmap.yaml               every file that a ConfigMap holds
  kubectl -n gpu-operator get cm plugin-config -o yaml | gpuscape check-config -
  gpuscape check-config --kind counters dcp-metrics.csv
  gpuscape check-config -o json *.yaml | jq '.configs[] | select(.refused != [])'

\b
Kinds of files:
  device-plugin  of NVIDIA's device plugin and gpu-feature-discovery: what is offered
  mig            of nvidia-mig-parted: layouts, and the GPU models on which each fits
  counters       of dcgm-exporter, CSV or YAML: what is served, and what is not
  label-rules    your own rules for labels of Nodes
  web            of Prometheus' exporters: TLS, passwords, headers
The kind is recognised by the file's keys. A line FILE:LINE: KEY: REASON shows why a file is refused
and what to write instead; the agent and the doctor read the files with the same code.
In a ConfigMap, or in a Secret's stringData, each entry is checked, with the lines of your file.

\b
Exit codes:
  0  every configuration is valid
  1  a configuration is refused
  2  bad input: a file that cannot be read, or whose kind cannot be recognised"""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in ConfigKind]),
    help="What the files are.  [default: recognised, file by file]",
)
@click.option(
    "--here", is_flag=True, help="Read this machine too, and show what it would offer and get."
)
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    files: tuple[str, ...],
    kind: str | None,
    here: bool,
    output: str,
) -> None:
    """Check configuration files, and show what they mean. Each FILE is a path, or - for stdin.

    Device plugin, MIG, counters, rules for labels and web config; also ConfigMaps that hold them.
    The command writes nothing, and reads no machine without --here or --simulate.
    """
    settings = load()
    machine = _machine(settings) if here or settings.simulate is not None else None
    requested_kind = None if kind is None else ConfigKind(kind)
    results = [result for file in files for result in _checked(file, requested_kind, machine)]
    checked = [result for result in results if isinstance(result, CheckedConfig)]
    unchecked = [result for result in results if isinstance(result, UncheckedText)]
    check_report.show_checked_configs(checked, unchecked, output)
    if any(not config.is_good for config in checked):
        ctx.exit(_REFUSED)
    if unchecked:
        ctx.exit(_UNKNOWN)


def _checked(
    file: str, requested_kind: ConfigKind | None, machine: MachineLabels | None
) -> Iterator[CheckedConfig | UncheckedText]:
    """The file's configuration, or those of its entries."""
    from cli.config_check.config_checks import check_config  # loads the readers of all kinds

    try:
        texts = tuple(config_texts(_text(file), _title(file)))
    except BadInput as error:
        yield UncheckedText(file=_title(file), entry="", reason=str(error))
        return
    if not texts:
        yield UncheckedText(file=_title(file), entry="", reason="it holds no file")
    for text in texts:
        text_kind = requested_kind or likeliest_kind(text.text)
        if text_kind is None:
            yield UncheckedText(file=text.file, entry=text.entry, reason=_why_unknown(text))
        else:
            yield check_config(text, text_kind, machine)


def _why_unknown(text: ConfigText) -> str:
    if not text.text.strip():
        return "it is empty"
    return "its keys are of no kind of configuration: name the kind with --kind"


def _title(file: str) -> str:
    return "standard input" if file == STDIN else file


def _text(file: str) -> str:
    content = read_stdin() if file == STDIN else read_bytes(Path(file))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise BadInput(f"{_title(file)}:{line}: it is not UTF-8 text: save it as UTF-8") from error


def _machine(settings: AgentSettings) -> MachineLabels:
    """Labels of the machine that the settings name, which is read once for each configuration."""
    started = time.time()

    @functools.cache
    def labels(config: PluginConfig) -> Mapping[str, str]:
        labelling = label_settings(settings, config, started)
        return decide_labels(take_snapshot(settings, config), labelling).values

    return labels
