"""The command ``tether completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    r"""Print the script that lets SHELL complete commands, options and verdicts.

    \b
    bash:  eval "$(tether completion bash)"        in ~/.bashrc
    zsh:   eval "$(tether completion zsh)"         in ~/.zshrc
    fish:  tether completion fish > ~/.config/fish/completions/tether.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows each of these shells"
    click.echo(kind(context.find_root().command, {}, "tether", "_TETHER_COMPLETE").source())
