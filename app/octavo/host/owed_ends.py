"""Ends of turns on their way to the store: one that it refuses is kept and offered again until it is taken."""

import asyncio
import logging
from collections.abc import Sequence

from octavo.host.bookkeeping import Ending, end
from octavo.host.store_thread import StoreThread
from octavo_data import StoreError, TurnClosedError, TurnNotFoundError

log = logging.getLogger(__name__)


class OwedEnds:
    """What the store does not have yet of turns that are over; belongs to the loop's thread."""

    def __init__(self, store: StoreThread) -> None:
        self._store = store
        self._endings: dict[str, Ending] = {}
        self._paying = asyncio.Lock()

    @property
    def endings(self) -> Sequence[Ending]:
        """Those that are owed, the oldest first."""
        return tuple(self._endings.values())

    async def write(self, ending: Ending) -> StoreError | None:
        """Store an end; if that fails, why, and from then on it is owed."""
        error = await self._offer(ending)
        if error:
            self._endings[ending.turn_id] = ending
            log.warning("the end of a turn cannot be stored: %s", error)
        return error

    async def pay(self) -> None:
        """Offer all again; quietly, since this is done each second."""
        async with self._paying:  # what two offer at once would be refused to the second
            for ending in self.endings:
                if await self._offer(ending) is None:
                    del self._endings[ending.turn_id]

    async def _offer(self, ending: Ending) -> StoreError | None:
        try:
            await self._store.run(end, ending)
        except (TurnClosedError, TurnNotFoundError) as error:  # taken for dead, or deleted
            log.warning("an end came too late: %s", error)
        except StoreError as error:
            return error
        return None
