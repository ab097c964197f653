"""`octavo engine`: look at, start and stop the background process that runs a model."""

import click

_model = click.option("-m", "--model", metavar="NAME", help="Another model than the configured one.")
_json = click.option("--json", "is_json", is_flag=True, help="As JSON.")


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """The background process that runs the model; without a command: its status."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(status)


@command.command()
@_model
@_json
def status(model: str | None = None, is_json: bool = False) -> None:
    """Show the device and how full the engine is; exit code 1 when none runs."""
    import asyncio

    from octavo.cli.engine_control import print_status, read_status

    print_status(asyncio.run(read_status(model)), is_json)


@command.command()
@_model
@_json
def start(model: str | None, is_json: bool) -> None:
    """Start it and wait until the model is loaded."""
    import asyncio

    from octavo.cli.engine_control import print_status, start_host

    print_status(asyncio.run(start_host(model)), is_json)


@command.command()
@_model
@_json
def stop(model: str | None, is_json: bool) -> None:
    """Stop it; running turns are closed as interrupted."""
    import asyncio

    from octavo.cli.engine_control import stop_host
    from octavo.cli.output import print_json

    name, was_running = asyncio.run(stop_host(model))
    if is_json:
        print_json({"model": name, "was_running": was_running})
    else:
        click.echo(f"The engine of {name} {'has stopped' if was_running else 'was not running'}.", err=True)
