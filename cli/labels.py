# SPDX-License-Identifier: Apache-2.0
"""``gpuscape labels``: the node labels of this machine, and why each is there or is not."""

from __future__ import annotations

import time

import click

from agent.settings.labels_from_settings import label_settings, plugin_config
from agent.single_reading import take_snapshot
from cli import options, terminal
from cli.failures import UNEXPECTED, CommandFailure
from cli.missing_gpus import end_without_gpus
from cli.options import Load
from cli.terminal import Styled, TextTable
from labelers import feature_file
from labelers.compose import LabelDecisions, decide_labels
from labelers.explanation import LabelExplanation, LabelOutcome, label_explanations

_STYLES = {LabelOutcome.SET: "green", LabelOutcome.KEPT: "yellow", LabelOutcome.ABSENT: "dim"}


@click.command(
    epilog="""\b
Examples:
  gpuscape labels
  gpuscape labels --explain --mig-strategy mixed --simulate a30-pair
  gpuscape labels --sharing-config plugin.yaml -o json
  gpuscape labels --label-rules rules.yaml --simulate dgx-a100-80gb
  gpuscape labels -o feature-file > /etc/kubernetes/node-feature-discovery/features.d/gpuscape

\b
With --explain each label is `set`, `kept` (its fact cannot be read now, so the node's label
stays) or `absent` (it is known not to apply, and is removed)."""
)
@click.option("--explain", "explained", is_flag=True, help="Show every possible label, and why.")
@options.output("table", "json", "yaml", "feature-file")
@options.settings(
    "mig-strategy",
    "sharing-config",
    "label-rules",
    "timestamp",
    "machine-type-file",
    *options.READING,
)
def command(load: Load, explained: bool, output: str) -> None:
    """Show the labels this machine's node gets: gpu-feature-discovery's, our own, yours by rules.

    The command writes nothing.
    """
    if explained and output == "feature-file":
        raise click.UsageError("--explain has no feature-file format: use table, json or yaml")
    settings = load()
    plugin = plugin_config(settings)
    snapshot = take_snapshot(settings, plugin)
    labels = decide_labels(snapshot, label_settings(settings, plugin, time.time()))
    if explained:
        _show_explained(label_explanations(labels), output)
    else:
        _show(labels.values, output)
    _report(labels)
    end_without_gpus(snapshot)


def _show(values: dict[str, str], output: str) -> None:
    match output:
        case "table":
            terminal.show_table(TextTable(header=("LABEL", "VALUE"), rows=tuple(values.items())))
        case "feature-file":
            terminal.print_document(feature_file.feature_file_content(values).decode())
        case _:
            terminal.print_data(values, output)


def _show_explained(explanations: tuple[LabelExplanation, ...], output: str) -> None:
    if output != "table":
        terminal.print_data(explanations, output)
        return
    rows = tuple(
        (
            explanation.key,
            Styled(explanation.outcome, _STYLES[explanation.outcome]),
            explanation.text,
            explanation.source,
        )
        for explanation in explanations
    )
    terminal.show_table(
        TextTable(header=("LABEL", "OUTCOME", "VALUE OR REASON", "SOURCE"), rows=rows)
    )


def _report(labels: LabelDecisions) -> None:
    """After the labels, on standard error: what is not among them and should be.

    Raises CommandFailure where a labeler failed, which is a bug.
    """
    for explanation in label_explanations(labels):
        if explanation.key in labels.illegal:
            terminal.note(f"Left out {explanation.key}: {explanation.text}", err=True)
    if labels.failures:
        failed = "; ".join(f"{failure.labeler}: {failure.error}" for failure in labels.failures)
        raise CommandFailure(f"some labels are left as they are: {failed}", UNEXPECTED)
