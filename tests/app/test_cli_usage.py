"""What the command line says to wrong usage, to mistakes in the config, and where there is nothing yet."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.cli_stage import Run, command


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["-o", "temprature", "1", "hi"], 'Did you mean "temperature"?'),
        (["-o", "zzz", "1", "hi"], "Known: temperature, top_k"),
        (["-o", "temperature", "warm", "hi"], 'temperature is "warm"; it must be a number'),
        (["-o", "stop_token_ids", "x", "hi"], 'stop_token_ids is "x"; it must be a whole number'),
        (["-o", "logit_bias", "5", "hi"], 'logit_bias is "5:"; it must be a number'),
        (["-o", "logit_bias", "x:1", "hi"], 'logit_bias is "x:1"; it must be a whole number'),
        (["-o", "top_p", "7", "hi"], "top_p is 7.0; it must be above 0, up to 1"),
        (["-o", "temperature"], "requires 2 arguments"),
        (["-c", "--chat", "abc", "hi"], "two chats"),
        (["-c", "-s", "Be brief.", "hi"], "-s is for a new chat"),
        (["-n", "-c", "hi"], "-n leaves no trace"),
        (["-m", "", "hi"], '"" is no model name. Known: smollm2-135m'),
        ([], "Nothing to ask"),
        (["ask", "  "], "Nothing to ask"),
        (["--nonsense", "hi"], "No such option"),
        (["-m", "smollm2", "hi"], 'Did you mean "smollm2-135m"?'),
        (["models", "pull", "smollm2"], 'Did you mean "smollm2-135m"?'),
        (["chats", "nonsense"], "No such command"),
        (["engine", "status", "hi"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_exits_2_with_a_hint_on_stderr(octavo: Run, arguments: list[str], hint: str) -> None:
    done = octavo(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["hi"], "Fetch it: octavo models pull smollm2-135m"),
        (["-c", "hi"], "no chat yet"),
        (["--chat", "", "hi"], "no chat"),
        (["db", "backup"], "octavo.db is not there. Nothing was asked yet, or OCTAVO_HOME should name another folder."),
        (["db", "check"], "is not there"),
        (["db", "vacuum"], "is not there"),
        (["chats", "show", "abc"], "no chat"),
        (["models", "path", "smollm2-135m"], "octavo models pull smollm2-135m"),
        (["models", "rm", "smollm2-135m"], "not on this machine"),
        (["models", "pull", "./here"], "is no folder"),
        (["engine", "status", "-m", "echo"], "octavo engine start"),
    ],
)
def test_a_refusal_exits_1_with_one_line_on_stderr(octavo: Run, arguments: list[str], hint: str) -> None:
    done = octavo(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("octavo: ")
    assert done.stderr.count("\n") == 1
    assert hint in done.stderr


def test_a_mistake_in_the_config_is_told_by_every_command_that_needs_it(octavo: Run, tmp_path: Path) -> None:
    file = tmp_path / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text("blok_size = 16")
    for arguments in (["hi"], ["config"], ["engine", "status"]):
        done = octavo(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert 'Did you mean "block_size"?' in done.stderr


def test_a_wrong_model_in_the_config_is_a_refusal_that_names_the_file(octavo: Run, tmp_path: Path) -> None:
    file = tmp_path / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text('model = "smollm2"')
    done = octavo("hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("octavo: config.toml: ")
    assert 'Did you mean "smollm2-135m"?' in done.stderr


@pytest.mark.parametrize("noun", ["chats", "models", "engine", "config"])
def test_every_noun_has_help(octavo: Run, noun: str) -> None:
    done = octavo(noun, "--help")
    assert done.returncode == 0
    assert f"Usage: octavo {noun}" in done.stdout


def test_help_imports_nothing_slow(env: dict[str, str]) -> None:
    slow = {"torch", "transformers", "textual", "asyncio", "sqlite_utils", "sqlite3", "msgspec", "rich", "platformdirs"}
    script = f"""
import sys
from octavo.cli.main import run
assert run(["--help"]) == 0
print({slow!r} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == "set()\n"


def test_paths_and_settings(octavo: Run, tmp_path: Path) -> None:
    assert octavo("config", "path").stdout == f"{tmp_path}/config/config.toml\n"
    assert octavo("chats", "path").stdout == f"{tmp_path}/data/octavo.db\n"
    assert octavo("models", "path").stdout == f"{tmp_path}/data/models\n"
    assert json.loads(octavo("config", "--json").stdout)["model"] == "smollm2-135m"
    assert 'model = "smollm2-135m"\n' in octavo("config", "show").stdout


def test_nothing_stored_is_an_empty_list(octavo: Run) -> None:
    for noun in ("chats", "models"):
        assert octavo(noun).stdout == ""
        assert json.loads(octavo(noun, "list", "--json").stdout) == []


def test_chats_of_a_newer_version_are_listed_with_a_word_about_it(octavo: Run, tmp_path: Path) -> None:
    octavo("chats")
    with sqlite3.connect(tmp_path / "data/octavo.db") as store:
        store.execute("INSERT INTO migrations VALUES ('m999_later', 0)")
    done = octavo("chats", "--json")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert "written by a newer octavo" in done.stderr


def test_a_home_that_is_a_file_is_told_in_one_line(env: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.touch()
    for arguments in (["-m", "echo", "hi"], ["chats"], ["engine", "stop"], ["models"], ["config"]):
        done = subprocess.run(
            command(*arguments),
            env=env | {"OCTAVO_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert b"Traceback" not in done.stderr
        assert done.stderr.count(b"\n") <= 1
