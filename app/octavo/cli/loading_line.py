"""Says on stderr, in a terminal, how far the model is that somebody waits for."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TextIO

from octavo.cli.output import plain
from octavo.client import Client


@contextlib.contextmanager
def loading_line(client: Client, stream: TextIO | None = None) -> Iterator[None]:
    """While the body runs and the model loads, one line says so; it is gone before the first word of a reply."""
    stream = stream or sys.stderr
    if client.is_ready or not stream.isatty():
        yield
        return
    from rich.console import Console  # a tenth of a second, which only those pay who wait anyway
    from rich.status import Status
    from rich.text import Text

    line = Status(Text(_words(client)), console=Console(file=stream))

    def draw() -> None:
        if client.is_ready or client.failure or client.closed.is_set():
            line.stop()
        else:
            line.update(Text(_words(client)))

    unsubscribe = client.subscribe(draw)
    line.start()
    try:
        yield
    finally:
        unsubscribe()
        line.stop()


def _words(client: Client) -> str:
    return plain(f"loading {client.model}{f': {client.loading}' if client.loading else ' …'}")
