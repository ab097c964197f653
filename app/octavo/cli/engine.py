"""`octavo engine`: look at, start and stop the background process that runs a model."""

import click

_model = click.option("-m", "--model", metavar="NAME", help="Another model than the configured one.")
_json = click.option("--json", "is_json", is_flag=True, help="As JSON.")


@click.group(invoke_without_command=True)
@_model
@_json
@click.pass_context
def command(ctx: click.Context, model: str | None, is_json: bool) -> None:
    """The background process that runs the model; without a command: its status."""
    if ctx.invoked_subcommand is None:
        _status(model, is_json)


@command.command()
@_model
@_json
def status(model: str | None, is_json: bool) -> None:
    """Show the device and how full the engine is; exit code 1 when none runs."""
    _status(model, is_json)


@command.command()
@_model
@_json
def start(model: str | None, is_json: bool) -> None:
    """Start it and wait until the model is loaded."""
    import asyncio

    from octavo.cli.engine_control import print_status, start_host

    print_status(asyncio.run(start_host(model)), is_json)


@command.command()
@click.option("-m", "--model", metavar="NAME", help="Only those of this model.")
@_json
def stop(model: str | None, is_json: bool) -> None:
    """Stop all that run, whatever model and settings they have; running turns are closed as interrupted."""
    import asyncio

    from octavo.cli.engine_control import stop_hosts
    from octavo.cli.output import print_json

    stopped = asyncio.run(stop_hosts(model))
    if is_json:
        print_json({"stopped": stopped})
        return
    for name in stopped:
        click.echo(f"The engine of {name} has stopped.", err=True)
    if not stopped:
        click.echo(f"No engine{f' of {model}' if model else ''} was running.", err=True)


@command.command()
@click.option("--clear", "is_clearing", is_flag=True, help="Remove all of them.")
@_json
def disk(is_clearing: bool, is_json: bool) -> None:
    """Show the KV blocks on disk, which a restarted engine loads instead of computing them."""
    from octavo.cli.engine_disk import print_disk

    print_disk(is_clearing=is_clearing, is_json=is_json)


def _status(model: str | None, is_json: bool) -> None:
    import asyncio

    from octavo.cli.engine_control import print_status, read_status

    print_status(asyncio.run(read_status(model)), is_json)
