"""The command ``tether rulebook``: the table of every way of copying, tried on this PyTorch."""

from __future__ import annotations

import sys
from fnmatch import fnmatch

import click

from tether.operations import RULES, Rule
from tether.report import rulebook as render
from tether.report.document.text import coloured


@click.command("rulebook", short_help="Show what every way of copying does, tried on your PyTorch.")
@click.option("--device", default="cpu", show_default=True, help="Where the experiments run.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Only rules whose name, operation or heading fits (a part of it, or a pattern with *).",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md", "json", "html"]),
    default="text",
    show_default=True,
)
@click.option("--no-cache", is_flag=True, help="Try everything again.")
def rulebook_command(device: str, only: tuple[str, ...], format_: str, *, no_cache: bool) -> None:
    """Show what every PyTorch way of copying does, checked on the installed PyTorch.

    The exit code is 1 when a row differs from what was seen.
    """
    chosen = [rule for rule in RULES if not only or any(_fits(rule, name) for name in only)]
    if not chosen:
        raise click.UsageError(f"no rule fits {', '.join(only)}; `tether rulebook` lists them all")
    rows = _tried(chosen, device, use_cache=not no_cache)
    click.echo(_lowered(rows, device, format_), nl=False)
    if any(row.status == "different" for row in rows):
        sys.exit(1)


def _tried(rules: list[Rule], device: str, *, use_cache: bool) -> list[render.Row]:
    """Run the experiments, with a progress bar where somebody watches."""
    import torch

    from tether.measure.experiments import cache_folder, verify

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise click.UsageError(f"device {device!r} cannot be used: {reason}") from None
    cache = cache_folder() if use_cache else None
    if sys.stderr.isatty():
        with click.progressbar(
            length=len(rules), label="Trying every rule", file=sys.stderr
        ) as bar:
            verdicts = verify(rules, device, cache=cache, progress=lambda _: bar.update(1))
    else:
        verdicts = verify(rules, device, cache=cache)
    return [
        render.Row(rule, verdict.status, verdict.tried, verdict.seen)
        for rule, verdict in zip(rules, verdicts, strict=True)
    ]


def _lowered(rows: list[render.Row], device: str, format_: str) -> str:
    if format_ == "md":
        return render.to_markdown(rows)
    if format_ == "json":
        import torch

        return render.to_json(rows, torch=torch.__version__, device=device)
    if format_ == "html":
        return render.to_html(rows)
    import shutil

    width = shutil.get_terminal_size((120, 24)).columns
    return render.to_text(rows, width=width, color=coloured(sys.stdout))


def _fits(rule: Rule, name: str) -> bool:
    pattern = name.lower() if "*" in name else f"*{name.lower()}*"
    words = (rule.slug, rule.operation, rule.family, *rule.names)
    return any(fnmatch(word.lower(), pattern) for word in words)
