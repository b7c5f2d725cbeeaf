# SPDX-License-Identifier: Apache-2.0
"""``gpuscape completion``: what a shell needs to complete our options and machine names."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

from cli import terminal


@click.command(
    epilog="""\b
Examples:
  source <(gpuscape completion bash)
  gpuscape completion zsh > "${fpath[1]}/_gpuscape"
  gpuscape completion fish > ~/.config/fish/completions/gpuscape.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    Commands, options, simulated machines, files, and names of Nodes are completed; the last if
    the cluster of your kubeconfig answers within a second. The script asks gpuscape itself, so it
    stays right when gpuscape is upgraded.
    """
    complete = get_completion_class(shell)
    if complete is None:  # click dropped a shell that we promise
        raise LookupError(shell)
    terminal.print_document(
        complete(ctx.find_root().command, {}, "gpuscape", "_GPUSCAPE_COMPLETE").source()
    )


def print_for_kubectl(words: Sequence[str]) -> None:
    """Print what may stand in place of the last word, as kubectl asks its plugins.

    Source: kubectl, "Extend kubectl with plugins": ``kubectl_complete-NAME`` gets the words typed
    so far, and its last line is a directive of cobra's: 0 adds a space and offers files, 4 offers
    no files.
    """
    from cli.main import main

    *before, last = words or ("",)
    completions = ShellComplete(main, {}, "kubectl gpuscape", "").get_completions(
        list(before), last
    )
    names = [completion.value for completion in completions if completion.type == "plain"]
    terminal.note(*names, ":4" if names else ":0")
