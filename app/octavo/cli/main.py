"""The commands of `octavo`, what runs without one, and how errors become exit codes."""

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

import click

from octavo import __version__
from octavo.errors import ModelNameError, OctavoError


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and its line in --help, so that it need not be imported for that."""

    module: str
    help: str


COMMANDS = {
    "ask": Entry("octavo.cli.ask", "One question, one answer; the word itself may be left out."),
    "chats": Entry("octavo.cli.chats", "List, search, sort, show, export and import the stored chats."),
    "db": Entry("octavo.cli.db", "Copy, check and shrink the file that holds the chats."),
    "models": Entry("octavo.cli.models", "Fetch, list and remove models."),
    "engine": Entry("octavo.cli.engine", "The background process that runs the model."),
    "bench": Entry("octavo.cli.bench", "Measure the engine on fixed work."),
    "doctor": Entry("octavo.cli.doctor", "What is installed, chosen, slow or missing, and what to do."),
    "config": Entry("octavo.cli.config", "Show the settings and where their file is."),
}
OWN_OPTIONS = ("--help", "--version", "--demo")


class Commands(click.Group):
    """Imports a command when it is called; what begins with no command's name is a question for `ask`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of --help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; modules name it `command`."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        found: click.Command = importlib.import_module(entry.module).command
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `ask` before a bare question; without any argument a pipe is one, too."""
        is_question = args[0] not in (*COMMANDS, *OWN_OPTIONS) if args else not sys.stdin.isatty()
        return super().parse_args(ctx, ["ask", *args] if is_question else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.command(cls=Commands, invoke_without_command=True, subcommand_metavar='[COMMAND | "QUESTION"] [ARGS]...')
@click.version_option(__version__, prog_name="octavo", message="%(prog)s %(version)s")
@click.option("--demo", is_flag=True, help="Open the terminal UI with an engine that only echoes.")
@click.pass_context
def octavo(ctx: click.Context, demo: bool) -> None:
    """Chat with a model that runs on this machine.

    Without arguments the terminal UI opens. With a question, the answer goes to stdout; what is piped in is put before
    the question. See "octavo ask --help" for its options.
    """
    if ctx.invoked_subcommand is None:
        from octavo.cli.ui import open_ui

        ctx.exit(open_ui("echo" if demo else None))


def run(arguments: list[str]) -> int:
    """Run one command and return the exit code: 0 done, 1 refused or failed, 2 usage, 128 and a signal's number."""
    _open_streams()
    try:
        result = octavo.main(arguments, prog_name="octavo", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        if not _is_expected(error):
            raise
        click.echo(f"octavo: {one_line(str(error))}", err=True)
        return 2 if isinstance(error, ModelNameError) else 1
    return result if isinstance(result, int) else 0


def _open_streams() -> None:
    """Let both take whatever is written: a letter that is not in the encoding, and all of it where they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115, PTH123  for the rest of the process
        stream.reconfigure(errors="replace")
        setattr(sys, name, stream)


def one_line(text: str) -> str:
    """All on one line, whatever a library put into its message."""
    return " ".join(text.split())


def _is_expected(error: Exception) -> bool:
    """Whether this was raised on purpose; the other packages are looked at only once something went wrong."""
    if isinstance(error, OctavoError):
        return True
    known: tuple[Any, ...] = (
        importlib.import_module("octavo_data.errors").StoreError,
        importlib.import_module("octavo_engine.errors").EngineError,
    )
    return isinstance(error, known)
