"""The one thread of the host that touches SQLite, so that a slow disk or a locked file holds up nobody else."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from octavo_data import Store, StoreWriteError

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs functions over the store, one after the other; the file is opened by the first that needs it, and anew
    behind one that found it read-only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store: Store | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="octavo-store")

    async def run(self, function: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(store, ...)`; raises what it raises, and StoreError when there is no store.

        Cancelling does not take back what has begun.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, lambda: self._run(lambda store: function(store, *args, **kwargs))
        )

    async def close(self) -> None:
        """Finish what was asked for, then give the file back."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._close)
        self._executor.shutdown()

    def _run(self, function: Callable[[Store], T]) -> T:
        try:
            return function(self._opened())
        except StoreWriteError as error:
            if _is_for_ever(error):
                self._close()
            raise

    def _opened(self) -> Store:
        if self._store is None:
            self._store = Store(self._path)
        return self._store

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _is_for_ever(error: StoreWriteError) -> bool:
    """A file that was read-only when it was opened stays so for that connection, whatever a person does about it."""
    code: int = getattr(error.__cause__, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_READONLY  # the rest says which kind of it
