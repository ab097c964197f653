"""Room in the memory for a model: hosts of other models that have nothing to do are asked to end."""

import asyncio
import contextlib
import logging
import time

from octavo.client import Client
from octavo.errors import HostError
from octavo.host_lock import Holder, is_free, running_hosts
from octavo.launcher import HostSpec

log = logging.getLogger(__name__)
END_TIMEOUT_S = 15.0  # a process that ends gives its memory back last
_POLL_S = 0.05


def is_memory_short(error: BaseException) -> bool:
    """Whether this says that a model does not fit; torch's own error is known by its name, without importing torch."""
    return isinstance(error, MemoryError) or type(error).__name__ in ("MemoryShortError", "OutOfMemoryError")


def make_room(spec: HostSpec) -> list[str]:
    """Ask the other hosts to end and wait for those that do; returns their models. Not for the thread of a loop."""
    return asyncio.run(_make_room(spec))


async def _make_room(spec: HostSpec) -> list[str]:
    others = [host for host in running_hosts(spec.paths) if host.key != spec.key]
    are_gone = await asyncio.gather(*(_ask(spec, host) for host in others))
    gone = [host.model for host, is_gone in zip(others, are_gone, strict=True) if is_gone]
    log.info("hosts that made room for %s: %s", spec.model, ", ".join(gone) or "none")
    return gone


async def _ask(spec: HostSpec, host: Holder) -> bool:
    with contextlib.suppress(HostError):  # it is starting, or ending already
        async with await Client.open(spec.paths.socket(host.key)) as client:
            if not await client.give_way(spec.model):
                return False
    deadline = time.monotonic() + END_TIMEOUT_S
    while not (is_gone := is_free(spec.paths.lock(host.key))) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
    return is_gone
