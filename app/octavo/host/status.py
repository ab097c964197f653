"""How a host's engine and its blocks on disk fare, for `octavo engine status` and status lines."""

import logging

import msgspec

from octavo.host.engine_thread import EngineThread
from octavo.host.store_thread import StoreThread
from octavo.protocol import BlockCounts, DiskCounts, EngineStatus, RequestCounts
from octavo_data import StoreError
from octavo_data.kv_index import KVIndex
from octavo_engine.loaded import ModelInfo

log = logging.getLogger(__name__)


async def engine_status(model: str, info: ModelInfo, engine: EngineThread, store: StoreThread) -> EngineStatus:
    """The counts between two steps."""
    counts = await engine.call(lambda loaded: loaded.engine.counts())
    return EngineStatus(
        model=model,
        device=info.device,
        attention=info.attention,
        dtype=info.dtype,
        block_size=info.block_size,
        blocks=msgspec.convert(counts, BlockCounts, from_attributes=True),
        requests=msgspec.convert(counts, RequestCounts, from_attributes=True),
        disk=await _disk_counts(store),
        kv_bytes_per_token=info.kv_bytes_per_token,
    )


async def _disk_counts(store: StoreThread) -> DiskCounts:
    try:
        totals = await store.run(lambda store: KVIndex(store).totals())
    except StoreError as error:  # the engine fares as it fares without its store
        log.warning("the blocks on disk cannot be counted: %s", error)
        return DiskCounts(blocks=0, bytes=0)
    return DiskCounts(blocks=totals.blocks, bytes=totals.bytes)
