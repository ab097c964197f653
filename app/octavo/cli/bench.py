"""`octavo bench`: fixed work, printed numbers."""

import click

HELP = {
    "single": "one chat, 128 tokens in, 256 out",
    "eight": "eight of these at once",
    "long1": "one paste of 8,192 tokens",
    "shared100": "100 requests with one 1,024-token prefix",
    "mixed256": "256 requests of 100 to 1,024 tokens in and out",
    "chats": "eight chats of four turns under one system prompt",
    "prefix": "prompt tokens computed with and without the prefix cache",
    "fork": "what a fork costs",
    "abort": "from stop to stopped",
    "step": "one decode step by rows and context, beside the memory's bandwidth; with --profile also by kernel",
    "restart": "first token of a chat of 1,500 tokens after a restart, from disk and computed, and without one",
    "planning": "microseconds of Python a step, without a model",
    "waste": "KV slots that hold no token, without a model",
    "store": "lists, search and writes in a store of 100,000 turns, without a model",
}

COUNT = click.IntRange(min=1)


@click.command(epilog="NAME is one of: " + "; ".join(f"{name} ({text})" for name, text in HELP.items()) + ".")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=click.Choice(list(HELP)))
@click.option("-m", "--model", help="A pulled model, or a shape with random weights: qwen3-0.6b, llama-1b, llama-7b.")
@click.option("--rows", type=COUNT, multiple=True, metavar="N", help="Of step: only so many rows; may be given again.")
@click.option(
    "--context", "contexts", type=COUNT, multiple=True, metavar="N", help="Of step: tokens a row; may be given again."
)
@click.option(
    "--shared", type=click.IntRange(min=0), default=0, metavar="N", help="Of step: first tokens that all rows share."
)
@click.option("--profile", "is_profiled", is_flag=True, help="Of step: which kernels take its time.")
@click.option("--json", "is_json", is_flag=True, help="As a JSON list.")
def command(
    names: tuple[str, ...],
    model: str | None,
    rows: tuple[int, ...],
    contexts: tuple[int, ...],
    shared: int,
    is_profiled: bool,
    is_json: bool,
) -> None:
    """Measure the engine in this process, on an otherwise idle machine."""
    import json

    from octavo.bench.registry import run_all
    from octavo.bench.results import to_lines
    from octavo.bench.steps import CONTEXTS, ROWS, Cases
    from octavo.cli.setup import load

    if "step" not in names and (rows or contexts or shared or is_profiled):
        raise click.UsageError("--rows, --context, --shared and --profile are for step")
    settings, paths = load()
    cases = Cases(rows or ROWS, contexts or CONTEXTS, shared, is_profiled)
    results = run_all(names, model or settings.model, settings, paths, cases)
    if is_json:
        click.echo(json.dumps([result.to_json() for result in results], indent=2))
        return
    for line in to_lines(results):
        click.echo(line)
