"""Finding and starting hosts: one for each model however many look for it, and a plain word when it cannot start."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.app.host_stage import DEADLINE_S, FAST, HostStage, host_stage, kill, until

from octavo import launcher
from octavo.client import HostAbsentError
from octavo.config import Settings
from octavo.errors import HostError, ModelMissingError
from octavo.host_lock import Holder, running_hosts, sign, try_lock
from octavo.launcher import HostSpec, is_echo
from octavo.paths import Paths


def test_a_host_is_named_after_its_model_and_engine_settings(paths: Paths) -> None:
    plain = HostSpec.of(Settings(model="echo"), paths)
    assert plain.key.startswith("echo-")
    assert plain.key == HostSpec.of(Settings(model="echo", idle_minutes=3), paths).key
    others = [
        HostSpec.of(Settings(model="echo:20"), paths).key,
        HostSpec.of(Settings(model="echo", block_size=32), paths).key,
        HostSpec(Path("/models/echo"), Settings(model="echo"), paths).key,
    ]
    assert len({plain.key, *others}) == 4


def test_only_echo_and_its_paces_are_the_demo() -> None:
    assert [is_echo(name) for name in ("echo", "echo:20", "echoes", "./echo")] == [True, True, False, False]


async def test_a_missing_model_is_told_before_anything_starts(paths: Paths) -> None:
    with pytest.raises(ModelMissingError, match="octavo models pull"):
        await launcher.connect(Settings(), paths)
    assert not paths.state_dir.exists()


@pytest.mark.parametrize("own", [None, "7"])
async def test_a_core_is_left_to_others_unless_the_user_says_otherwise(
    stage: HostStage, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if own:
        monkeypatch.setenv("OMP_NUM_THREADS", own)
    client = await stage.connect()
    num_threads = int(psutil.Process(client.pid).environ()["OMP_NUM_THREADS"])
    assert num_threads == int(own or max(1, len(psutil.Process().cpu_affinity()) - 1))


async def test_without_starting_an_absent_host_is_an_error_with_a_remedy(paths: Paths) -> None:
    with pytest.raises(HostAbsentError, match="octavo engine start"):
        await launcher.connect(Settings(model="echo"), paths, start=False)
    assert await launcher.stop(paths) == []


async def test_all_who_look_at_the_same_moment_find_one_host(stage: HostStage) -> None:
    clients = await asyncio.gather(*(stage.connect() for _ in range(4)))
    assert len({client.pid for client in clients}) == 1


async def test_of_two_hosts_of_one_model_the_second_ends_quietly(stage: HostStage) -> None:
    client = await stage.connect()
    await client.wait_ready()
    command = [sys.executable, "-m", "octavo.host", *launcher._arguments(stage.spec())]
    second = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=DEADLINE_S, check=False)
    assert (second.returncode, second.stdout, second.stderr) == (0, b"", b"")
    assert await client.status()


async def test_the_socket_and_its_folder_are_private(stage: HostStage) -> None:
    await stage.connect()
    path = stage.paths.socket(stage.spec().key)
    await until(stage.paths.store_file.exists)  # the host answers before it opens the store
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent, stage.paths.store_file)]
    assert [oct(mode) for mode in modes] == ["0o600", "0o700", "0o600"]


async def test_a_stale_socket_is_replaced(stage: HostStage) -> None:
    path = stage.paths.socket(stage.spec().key)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    client = await stage.connect()
    kill(client)
    await client.closed.wait()
    assert path.is_socket()
    assert (await stage.connect()).pid != client.pid


async def test_the_host_has_its_own_session_and_holds_no_folder_of_ours(stage: HostStage) -> None:
    client = await stage.connect()
    assert os.getsid(client.pid) == client.pid
    assert psutil.Process(client.pid).cwd() == str(stage.paths.state_dir)


async def test_a_host_that_cannot_start_is_told_by_the_last_line_of_its_log(
    stage: HostStage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'this Python is broken' >&2\necho >&2\nexit 3\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(broken))
        with pytest.raises(HostError, match="did not start: this Python is broken") as caught:
            await stage.connect("echo")
        assert str(stage.spec("echo").log_file) in caught.value.remedy
        patch.setattr(sys, "executable", str(tmp_path / "none"))
        with pytest.raises(HostError, match="No such file"):
            await stage.connect("echo")


async def test_a_host_without_clients_and_work_ends_after_its_idle_time() -> None:
    async with host_stage(msgspec.structs.replace(Settings(), idle_minutes=0)) as stage:
        one, two = await stage.connect(), await stage.connect()
        await one.aclose()
        reply = two.submit("Still here, and still answering. " * 5)
        chat = (await reply.accepted()).chat_id
        await two.aclose()
        await until(stage.is_host_gone)
        with stage.store() as store:
            assert [turn.reply for turn in store.turns(chat or "")] == ["Still here, and still answering. " * 5]


async def test_stopping_waits_until_the_host_is_gone(stage: HostStage) -> None:
    client = await stage.connect()
    assert await launcher.stop(stage.paths, model="echo:7") == []
    assert await launcher.stop(stage.paths, model=FAST) == [FAST]
    assert stage.is_host_gone()
    await until(client.closed.is_set)


@pytest.mark.parametrize("is_path_long", [False, True])
async def test_all_hosts_of_one_home_are_stopped_whatever_their_settings(tmp_path: Path, *, is_path_long: bool) -> None:
    async with host_stage() as stage, host_stage() as other:
        if is_path_long:  # their sockets have hashed names in one folder then
            stage.paths, other.paths = (Paths.below(tmp_path / (name * 50)) for name in ("a", "b"))
        await stage.connect()
        stage.settings = Settings(block_size=32)  # as after an edit of config.toml
        await stage.connect("echo")
        with pytest.raises(HostAbsentError, match=r"for echo:2 with these settings \(but one for echo, echo:1\)"):
            await launcher.connect(Settings(model="echo:2"), stage.paths, start=False)
        foreign = await other.connect()
        await foreign.wait_ready()
        assert sorted(await launcher.stop(stage.paths)) == ["echo", FAST]
        assert await launcher.stop(stage.paths) == []
        assert await foreign.status()


async def test_a_host_that_hangs_is_ended_all_the_same(stage: HostStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_STOP_TIMEOUT_S", 0.3)
    client = await stage.connect()
    os.kill(client.pid, signal.SIGSTOP)
    assert await launcher.stop(stage.paths, model=FAST) == [FAST]
    assert stage.is_host_gone()


async def test_a_log_that_grew_too_long_is_begun_anew(stage: HostStage) -> None:
    log = stage.spec().log_file
    log.parent.mkdir(parents=True)
    log.write_text("old\n" * 300_000)
    await (await stage.connect()).wait_ready()
    assert log.stat().st_size < 10_000


@pytest.mark.parametrize("signs", [True, False])
def test_one_that_takes_the_lock_of_a_host_is_one_once_it_signs(paths: Paths, *, signs: bool) -> None:
    lock, is_held = paths.lock("echo"), threading.Event()

    def take() -> None:
        with try_lock(lock):
            is_held.set()
            time.sleep(0.2)
            if signs:
                sign(lock, "echo", "echo")
                is_seen.wait(DEADLINE_S)

    is_seen, taking = threading.Event(), threading.Thread(target=take)
    taking.start()
    assert is_held.wait(DEADLINE_S)
    assert running_hosts(paths) == [Holder(os.getpid(), "echo", "echo")] * signs
    is_seen.set()
    taking.join()
