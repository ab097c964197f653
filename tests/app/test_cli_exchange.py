"""Export and import as a shell uses them, and a turn on an imported chat in a real host."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.app.host_stage import FAST, HostStage
from tests.data.exchange_stage import chat_of

from octavo_data import Store, TurnStatus
from octavo_data.exchange.entries import ChatEntry
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.trees import add_chats

Run = Callable[..., "subprocess.CompletedProcess[str]"]
LINE = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
                     {"role": "assistant", "content": "Hi"}]}  # fmt: skip


@pytest.fixture
def octavo(tmp_path: Path) -> Run:
    env = os.environ | {"OCTAVO_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}

    def run(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "octavo", "chats", *arguments]
        return subprocess.run(command, env=env, cwd=tmp_path, input=given, capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture
def stored(tmp_path: Path) -> ChatEntry:
    """A chat in the store of the command line."""
    entry = chat_of(("What flows?", "The Rhône, *always*."), ("And?", "The Aare."))
    (tmp_path / "data").mkdir()
    with Store(tmp_path / "data" / "octavo.db") as store:
        add_chats(store, [entry])
    return entry


def test_stdout_carries_the_export_and_nothing_else(octavo: Run, stored: ChatEntry) -> None:
    done = octavo("export", stored.id[:22])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('---\ntitle: "Rivers"\n')
    assert "\n\n## You\n\nWhat flows?\n\n## smollm2-135m\n\nThe Rhône, *always*.\n\n## You\n\n" in done.stdout
    assert octavo("export", stored.id, "-o", "-").stdout == done.stdout
    assert json.loads(octavo("export", "--all", "--format", "jsonl").stdout)["messages"][1]["content"].startswith(
        "The R"
    )
    assert octavo("export", "--all", "--format", "html").stdout.startswith("<!DOCTYPE html>")


def test_a_file_is_written_whole_and_for_its_owner_alone(octavo: Run, stored: ChatEntry, tmp_path: Path) -> None:
    done = octavo("export", "--all", "-o", "all.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    file = tmp_path / "all.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_file(file, "m").chats == [stored]
    (tmp_path / "link.json").symlink_to("all.json")
    assert octavo("export", stored.id, "-o", "link.json").returncode == 0
    assert (tmp_path / "link.json").is_symlink()


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with Store(tmp_path / "data" / "octavo.db") as store:
        add_chats(store, [chat_of(("What flows?", "The Aare. " * 20_000)) for _ in range(20)])
    env = os.environ | {"OCTAVO_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    line = f"{sys.executable} -P -m octavo chats export --all | head -n 1"
    done = subprocess.run(["bash", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("---\n", "")


def test_a_device_is_written_and_not_replaced(octavo: Run, stored: ChatEntry, tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    assert octavo("export", "--all", "-o", "null").returncode == 0
    assert Path("/dev/null").is_char_device()
    for file in ("nowhere/all.json", "."):
        done = octavo("export", "--all", "-o", file)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "cannot write" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["export"], 2, "or --all"),
        (["export", "--all", "01m"], 2, "or --all"),
        (["export", "zzz"], 1, "no chat 'zzz'"),
        (["export", "--format", "pdf", "--all"], 2, "pdf"),
        (["import"], 2, "FILE"),
        (["import", "missing.json"], 1, "octavo: missing.json: No such file or directory"),
    ],
)
def test_wrong_calls_say_so_and_print_nothing(octavo: Run, arguments: list[str], code: int, hint: str) -> None:
    done = octavo(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert hint in done.stderr


def test_a_dash_is_stdin(octavo: Run) -> None:
    done = octavo("import", "-", given=json.dumps(LINE))
    assert (done.returncode, "1 chat and 1 turn imported" in done.stderr) == (0, True)


def test_an_import_counts_what_it_took_and_a_bad_file_does_not_stop_a_good_one(octavo: Run, tmp_path: Path) -> None:
    tool = {"role": "tool", "content": "42"}
    (tmp_path / "good.jsonl").write_text(json.dumps({"messages": [*LINE["messages"], tool]}))
    (tmp_path / "bad.jsonl").write_text(json.dumps(LINE) + '\n{"messages": [{"role": "us')
    done = octavo("import", "-m", "echo", "bad.jsonl", "good.jsonl")
    assert (done.returncode, done.stdout) == (1, "")
    bad, good = done.stderr.splitlines()
    assert bad.startswith("octavo: bad.jsonl: line 2: not JSON: ")
    assert bad.endswith("Nothing of this file was imported.")
    assert good == "good.jsonl: OpenAI JSONL, 1 chat and 1 turn imported; skipped: 1 tool message."
    again = octavo("import", "-m", "echo", "good.jsonl")
    assert (again.returncode, again.stderr.count("0 chats and 0 turns imported; skipped: 1 chat already here")) == (
        0,
        1,
    )
    (chat,) = json.loads(octavo("--json").stdout)
    assert (chat["model"], chat["system"], chat["title"]) == ("echo", "Be brief.", "Hello")


def test_a_file_without_chats_is_no_success(octavo: Run, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text('{"messages": []}')
    done = octavo("import", "-m", "echo", "none.jsonl")
    assert done.returncode == 1
    assert "0 chats and 0 turns imported; skipped: 1 empty chat" in done.stderr


async def test_a_turn_on_an_imported_chat_gets_its_prompt_from_the_messages(stage: HostStage, tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(json.dumps(LINE))
    with stage.store() as store:
        taken = read_file(tmp_path / "chats.jsonl", FAST)
        add_chats(store, taken.chats)
        chat_id = taken.chats[0].id
    client = await stage.connect()
    for prompt in ("And you?", "Why?"):
        async for _ in client.submit(prompt, chat_id=chat_id):
            pass
    with stage.store() as store:
        imported, second, third = store.turns(chat_id)
        assert [turn.reply for turn in (imported, second, third)] == ["Hi", "And you?", "Why?"]
        assert {turn.status for turn in (imported, second, third)} == {TurnStatus.DONE}
        prompt_ids = store.token_ids(second.id)[: second.counts.prompt_tokens]
        assert bytes(token for token in prompt_ids if token < 256) == b"Be brief.HelloHiAnd you?"
        assert (second.kept_tokens, third.kept_tokens) == (0, len(store.token_ids(second.id)))
