"""`octavo models`: fetch, list and remove models."""

import click


@click.group(invoke_without_command=True)
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
@click.pass_context
def command(ctx: click.Context, is_json: bool) -> None:
    """List the models on this machine."""
    if ctx.invoked_subcommand is None:
        _list(is_json)


@command.command("list")
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
def list_command(is_json: bool) -> None:
    """List the models on this machine."""
    _list(is_json)


@command.command("pull")
@click.argument("name", required=False)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing when it is here already.")
def pull_command(name: str | None, quiet: bool) -> None:
    """Fetch a model: a known name, hf:ORG/REPO, or a .gguf file to convert. Without NAME the configured one."""
    from octavo.cli.progress import drawn_progress
    from octavo.cli.setup import load
    from octavo.launcher import is_echo
    from octavo.models.pull import pull

    settings, paths = load()
    name = name or settings.model
    if is_echo(name):
        return
    with drawn_progress() as progress:
        folder = pull(name, paths, progress)
    if progress.is_used or not quiet:
        click.echo(f"{name} is in {folder}", err=True)


@command.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a model that was pulled or converted; it can be pulled again."""
    from octavo.models.resolve import remove
    from octavo.paths import Paths

    click.echo(f"Removed {remove(name, Paths.from_env())}", err=True)


@command.command()
@click.argument("name", required=False)
def path(name: str | None) -> None:
    """Print the folder of a model, or the folder of all of them."""
    from octavo.models.resolve import resolve
    from octavo.paths import Paths

    paths = Paths.from_env()
    click.echo(resolve(name, paths) if name else paths.models_dir)


def _list(is_json: bool) -> None:
    import msgspec

    from octavo.cli.output import print_json, print_rows, size
    from octavo.models.resolve import list_models
    from octavo.models.work import all_files_bytes
    from octavo.paths import Paths

    models = [(manifest, folder, all_files_bytes(folder)) for manifest, folder in list_models(Paths.from_env())]
    if is_json:
        extra = [{"path": str(folder), "size_bytes": num_bytes} for _, folder, num_bytes in models]
        print_json([msgspec.structs.asdict(model[0]) | more for model, more in zip(models, extra, strict=True)])
    elif models:
        print_rows([(manifest.name, size(num_bytes), str(folder)) for manifest, folder, num_bytes in models])
    else:
        click.echo("No models yet. Fetch the default one with octavo models pull.", err=True)
