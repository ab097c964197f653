"""A command that is interrupted, or loses its host, its reader or the disk, says so and keeps what was said."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.cli_stage import LONG, Run, begin, command, the_host


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_the_like_stop_the_turn_and_keep_what_was_said(
    octavo: Run, echo: str, env: dict[str, str], number: signal.Signals
) -> None:
    octavo("-m", echo, "-n", "start the host")
    with begin(command("-m", echo, LONG), env) as process:
        assert process.stdout
        said = process.stdout.read(10)
        process.send_signal(number)
        rest, errors = process.communicate(timeout=30)
    text = (said + rest).decode()
    assert (process.returncode, errors) == (128 + number, b"")
    assert len(text) < len(LONG)
    [chat] = json.loads(octavo("chats", "--json").stdout)
    [turn] = json.loads(octavo("chats", "show", chat["id"], "--json").stdout)["turns"]
    assert turn["status"] == "stopped"
    assert text == turn["reply"] + "\n" * (not turn["reply"].endswith("\n"))


def test_a_second_ctrl_c_does_not_wait_for_a_host_that_hangs(octavo: Run, echo: str, env: dict[str, str]) -> None:
    octavo("engine", "start", "-m", echo)
    with begin(command("-m", echo, LONG), env) as process:
        assert process.stdout
        process.stdout.read(10)
        host = the_host(env)
        os.kill(host, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        os.kill(host, signal.SIGCONT)
    assert (process.returncode, errors) == (130, b"")


def test_a_reply_that_the_end_of_the_engine_cuts_off_is_a_failure(octavo: Run, echo: str, env: dict[str, str]) -> None:
    octavo("engine", "start", "-m", echo)
    with begin(command("-m", echo, LONG), env) as process:
        assert process.stdout
        process.stdout.read(10)
        octavo("engine", "stop", "-m", echo)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (1, b"octavo: The engine was stopped. Ask again.\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_good_as_dev_null(octavo: Run, echo: str, env: dict[str, str], closed: str) -> None:
    octavo("engine", "start", "-m", echo)
    shell = f"{sys.executable} -P -m octavo -m {echo} 'hi there' {closed}"
    done = subprocess.run(shell, shell=True, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, "hi there" in done.stdout) == (0, "", ">&-" not in closed.split())


def test_a_turn_runs_for_chats_until_it_ends_or_its_host_dies(octavo: Run, echo: str, env: dict[str, str]) -> None:
    octavo("engine", "start", "-m", echo)
    with begin(command("-m", echo, LONG), env) as process:
        assert process.stdout
        process.stdout.read(10)
        [chat] = json.loads(octavo("chats", "--json").stdout)
        assert chat["last_status"] == "running"
        os.kill(the_host(env), signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
        assert b"The host went away" in errors
    assert octavo("chats", "show", chat["id"]).stdout.endswith("*(interrupted)*\n")


def test_a_closed_pipe_is_quiet_and_stops_the_reply(octavo: Run, echo: str, env: dict[str, str]) -> None:
    octavo("-m", echo, "-n", "start the host")
    with begin(command("-m", echo, LONG), env) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 1
    while (status := json.loads(octavo("chats", "--json").stdout)[0]["last_status"]) == "running":
        pass
    assert status == "stopped"
    for arguments in ("config", "--help"):
        shell = f"{sys.executable} -P -m octavo {arguments} | true"
        done = subprocess.run(shell, shell=True, env=env, capture_output=True, check=False)
        assert done.stderr == b""


@pytest.mark.parametrize("arguments", [["-m", "echo:5", "hi"], ["config"]])
def test_a_full_disk_is_told_in_one_line(octavo: Run, echo: str, env: dict[str, str], arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command(*arguments), env=env, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"No space left" in done.stderr
