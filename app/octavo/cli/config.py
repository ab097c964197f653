"""`octavo config`: the settings and their file."""

import sys

import click


@click.group(invoke_without_command=True)
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
@click.pass_context
def command(ctx: click.Context, is_json: bool) -> None:
    """Show the settings; unset ones stand behind a #."""
    if ctx.invoked_subcommand is None:
        _show(is_json)


@command.command()
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
def show(is_json: bool) -> None:
    """Show the settings; unset ones stand behind a #."""
    _show(is_json)


@command.command()
def path() -> None:
    """Print the path of config.toml; it need not exist."""
    from octavo.paths import Paths

    click.echo(Paths.from_env().config_file)


def _show(is_json: bool) -> None:
    import msgspec

    from octavo.cli.output import print_json
    from octavo.config import load_settings
    from octavo.paths import Paths

    settings = load_settings(Paths.from_env().config_file)
    if is_json:
        print_json(settings)
        return
    for key, value in msgspec.structs.asdict(settings).items():
        # TOML writes these values as JSON does
        line = f"# {key}" if value is None else f"{key} = {msgspec.json.encode(value).decode()}"
        sys.stdout.write(line + "\n")
