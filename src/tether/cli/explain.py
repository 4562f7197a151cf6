"""The command ``tether explain``: the page of one verdict, or of one way of copying."""

from __future__ import annotations

import difflib

import click

from tether.cli.exits import fail
from tether.cli.reporting import complete_slug


@click.command("explain", short_help="Print the page of a verdict or of a way of copying.")
@click.argument("slug", required=False, shell_complete=complete_slug)
def explain_command(slug: str | None) -> None:
    """Print the page of the verdict SLUG; without it, the list of verdicts.

    The name of a call (detach, numpy, expand) gives what the rulebook says of it.
    """
    from tether.operations import rule_for
    from tether.verdicts import VERDICTS

    pages = {verdict.slug: verdict for verdict in VERDICTS}
    if slug is None:
        for known, verdict in pages.items():
            click.echo(f"{known:22s} {verdict.summary}")
        return
    rule = rule_for(slug)
    if slug in pages:
        click.echo(pages[slug].page.strip())
    elif rule is not None:
        from tether.operations import words

        click.echo(f"{rule.call}\n\n{rule.sentence}\n")
        click.echo(f"memory    {words.memory(rule)}\ngradient  {words.gradient(rule)}")
        for label, text in (("raises", words.raised(rule)), ("better", rule.better)):
            if text:
                click.echo(f"{label:9s} {text}")
    else:
        close = difflib.get_close_matches(slug, pages, n=1)
        hint = f"did you mean {close[0]}?" if close else "tether explain lists them"
        fail(f"there is no verdict and no known call {slug!r}: {hint}")
