"""The store as every command opens it."""

import contextlib
from collections.abc import Iterator

import click

from octavo.host_lock import reap
from octavo.paths import Paths
from octavo_data import Store, StoreWriteError


@contextlib.contextmanager
def opened_store() -> Iterator[Store]:
    """The store, in which no turn is said to run whose host has died; what a person should know of it on stderr."""
    paths = Paths.from_env()
    with Store(paths.store_file) as store:
        if store.notice:
            click.echo(f"octavo: {store.notice}", err=True)
        with contextlib.suppress(StoreWriteError):  # for reading it is good enough
            reap(store, paths)
        yield store
