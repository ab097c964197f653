"""What a host does about KV blocks on disk beside loading and writing them: it counts them, or clears them away."""

from tests.app.host_stage import HostStage, host_stage, until

from octavo.config import Settings
from octavo_data.kv_files import KVFolder
from octavo_data.kv_index import KVIndex, KVRow


def put_block(stage: HostStage) -> None:
    """One of 100 bytes, of a model that nobody asks for."""
    where = KVFolder(stage.paths.kv_dir).write(b"n" * 32, bytes(100))
    row = KVRow(name=b"n" * 32, fingerprint="m", parent=b"p" * 32, depth=0, token_ids=(1,), where=where)
    with stage.store() as store:
        KVIndex(store).add([row], 1)


def files(stage: HostStage) -> list[str]:
    return [path.name for path in KVFolder(stage.paths.kv_dir).files()]


async def test_the_status_counts_all_blocks_on_disk() -> None:
    async with host_stage() as stage:
        put_block(stage)
        client = await stage.connect()
        await client.wait_ready()
        status = await client.status()
        assert status is not None
        assert (status.disk.blocks, status.disk.bytes) == (1, 100)
        assert len(files(stage)) == 1


async def test_where_the_settings_want_no_blocks_those_of_before_are_removed() -> None:
    async with host_stage(Settings(disk_cache_bytes=0)) as stage:
        put_block(stage)
        await stage.connect()
        await until(lambda: not files(stage))
        with stage.store() as store:
            assert KVIndex(store).totals().blocks == 0
