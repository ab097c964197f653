"""What `octavo engine` does over a client, and how it prints a status."""

import asyncio
from typing import Any

import msgspec

from octavo import launcher
from octavo.cli.loading_line import loading_line
from octavo.cli.output import print_json, print_rows, size
from octavo.cli.setup import load, with_model
from octavo.client import Client
from octavo.config import Settings
from octavo.errors import HostError
from octavo.paths import Paths
from octavo.protocol import EngineStatus

STATUS_TIMEOUT_S = 15.0  # a step of a big batch on a slow CPU may come first
Loading = dict[str, Any]  # what is known while the model is being loaded


async def read_status(model: str | None) -> EngineStatus | Loading:
    """The status of a running host; raises HostError when none runs."""
    settings, paths = load()
    async with await launcher.connect(with_model(settings, model), paths, start=False) as client:
        return await _status(client)


async def start_host(model: str | None) -> EngineStatus | Loading:
    """Start a host unless it runs, and wait for its model; raises HostError, ModelMissingError."""
    settings, paths = load()
    async with await launcher.connect(with_model(settings, model), paths) as client:
        with loading_line(client):
            await client.wait_ready()
        return await _status(client)


async def stop_hosts(model: str | None) -> list[str]:
    """End the hosts of a model (None: all) and return their models; raises HostError when one does not end.

    config.toml is not read: it may be what is wrong, and it may have changed since they started.
    """
    name = with_model(Settings(), model).model if model else None
    return await launcher.stop(Paths.from_env(), model=name)


async def _status(client: Client) -> EngineStatus | Loading:
    try:
        status = await asyncio.wait_for(client.status(), STATUS_TIMEOUT_S)
    except TimeoutError:
        raise HostError(
            f"The host of {client.model} does not answer", "Run `octavo engine stop`, then try again."
        ) from None
    return status or {"model": client.model, "loading": True, "step": str(client.loading or "")}


def print_status(status: EngineStatus | Loading, is_json: bool) -> None:
    """A status as JSON or for people."""
    if is_json:
        print_json(status)
    elif isinstance(status, EngineStatus):
        print_rows(_rows(status))
    else:
        print_rows([("model", status["model"]), ("state", f"loading: {status['step']}".removesuffix(": "))])


def _rows(status: EngineStatus) -> list[tuple[str, str]]:
    blocks = " · ".join(f"{count} {name}" for name, count in msgspec.structs.asdict(status.blocks).items())
    return [
        ("model", status.model),
        ("device", f"{status.device} · {status.dtype} · attention {status.attention}"),
        ("blocks", f"{blocks} · {status.block_size} tokens each · {status.kv_bytes_per_token} bytes a token"),
        ("requests", f"{status.requests.running} running · {status.requests.waiting} waiting"),
        ("disk", f"{status.disk.blocks} blocks · {size(status.disk.bytes)}"),
    ]
