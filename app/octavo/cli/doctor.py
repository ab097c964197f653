"""`octavo doctor`: what is installed, what the engine would choose and why, what is slow or missing and the remedy."""

import shutil
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from octavo.doctor.findings import Finding, State

MARGIN = 18  # where the sentences begin
MAX_WIDTH = 110


@click.command()
@click.option("-m", "--model", metavar="NAME", help="Another model than the configured one.")
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
def command(model: str | None, is_json: bool) -> int:
    """Look at everything that Octavo needs; exit code 1 when something that must work does not."""
    from octavo.cli.output import print_json
    from octavo.doctor.findings import State
    from octavo.doctor.report import examine
    from octavo.paths import Paths

    found = examine(model, Paths.from_env())
    findings = list(found) if is_json else _print_all(found)
    is_healthy = all(finding.state is not State.WRONG for finding in findings)
    if is_json:
        print_json({"is_healthy": is_healthy, "findings": findings})
    return 0 if is_healthy else 1


def _print_all(findings: "Iterable[Finding]") -> "list[Finding]":
    """Print each as it comes, then the sum; returns them."""
    printed = []
    for finding in findings:
        _print(finding)
        printed.append(finding)
    click.echo(f"\n{_sum(printed)}")
    return printed


def _print(finding: "Finding") -> None:
    from octavo.cli.output import plain

    color = {"ok": "green", "hint": "yellow", "wrong": "red"}[finding.state]
    head = f"{click.style(f'{finding.state:<6}', fg=color)} {finding.topic:<{MARGIN - 8}} "
    click.echo(head + _wrapped(plain(finding.text)))
    if finding.remedy:
        click.echo(" " * MARGIN + click.style(_wrapped(f"> {plain(finding.remedy)}"), bold=True))


def _wrapped(text: str) -> str:
    """The text in lines that fit behind the margin."""
    width = min(shutil.get_terminal_size((MAX_WIDTH, 24)).columns, MAX_WIDTH) - MARGIN
    lines = textwrap.wrap(" ".join(text.split()), max(width, 20), break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * MARGIN}".join(lines)


def _sum(findings: "list[Finding]") -> str:
    from octavo.doctor.findings import State

    num_wrong, num_hints = (_count(findings, state) for state in (State.WRONG, State.HINT))
    if num_wrong:
        return f"{num_wrong} to be mended{f', {num_hints} could be better' if num_hints else ''}."
    return f"Octavo can run; {num_hints} could be better." if num_hints else "All is well."


def _count(findings: "list[Finding]", state: "State") -> int:
    return sum(finding.state is state for finding in findings)
