"""The command line as its users meet it: real processes, exit codes, and nothing but the answer on stdout."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from octavo.host_lock import running_hosts
from octavo.paths import Paths
from octavo_data import Store

LONG = "word " * 400

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"OCTAVO_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}


@pytest.fixture
def octavo(env: dict[str, str], tmp_path: Path) -> Run:
    def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*arguments), env=env, cwd=tmp_path, input=stdin, capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def echo(octavo: Run) -> Iterator[str]:
    """The demo engine; one step of it takes 5 ms, so that there is something to interrupt."""
    model = "echo:5"
    yield model
    octavo("engine", "stop", "-m", model)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "octavo", *arguments]


def begin(arguments: list[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process whose pipes are not buffered here, or `communicate` would miss what was read ahead."""
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, bufsize=0)


# ---- usage ----


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


# ---- asking ----


def test_stdout_has_the_answer_and_a_newline(octavo: Run, echo: str) -> None:
    done = octavo("-m", echo, "how are you")
    assert (done.returncode, done.stdout, done.stderr) == (0, "how are you\n", "")


def test_what_is_piped_in_comes_before_the_question(octavo: Run, echo: str) -> None:
    assert octavo("-m", echo, "and then", stdin="first\r\nsecond\n").stdout == "first\nsecond\n\nand then\n"
    assert octavo("-m", echo, stdin="all of it").stdout == "all of it\n"


def test_text_is_never_markup_or_a_format(octavo: Run, echo: str) -> None:
    text = "[bold]x[/bold] {0} %s \\n"
    assert octavo("-m", echo, text).stdout == text + "\n"


def test_json_is_one_object_with_every_field(octavo: Run, echo: str) -> None:
    done = octavo("-m", echo, "--json", "hello")
    answer = json.loads(done.stdout)
    assert (answer["text"], answer["model"], answer["stop_reason"]) == ("hello", echo, "stop")
    assert set(answer) == {
        "text", "chat_id", "turn_id", "model", "stop_reason", "usage", "timings", "token_ids"
    }  # fmt: skip
    assert set(answer["usage"]) == {"prompt_tokens", "cached_tokens", "computed_tokens", "completion_tokens"}
    assert set(answer["timings"]) == {"queue_ms", "first_token_ms", "total_ms", "tokens_per_s"}
    assert len(answer["token_ids"]) == answer["usage"]["completion_tokens"]


def test_usage_goes_to_stderr(octavo: Run, echo: str) -> None:
    done = octavo("-m", echo, "--usage", "hello")
    assert done.stdout == "hello\n"
    assert "completion tokens; first token" in done.stderr


def test_options_reach_the_engine(octavo: Run, echo: str) -> None:
    answer = json.loads(octavo("-m", echo, "-o", "max_tokens", "3", "-o", "seed", "none", "--json", "hello").stdout)
    assert (answer["text"], answer["stop_reason"]) == ("hel", "length")


def test_a_chat_goes_on_and_is_shown(octavo: Run, echo: str) -> None:
    first = json.loads(octavo("-m", echo, "-s", "Be brief.", "--json", "one").stdout)
    assert octavo("-c", "two").stdout == "two\n"
    assert octavo("--chat", first["chat_id"][:24], "three").stdout == "three\n"
    shown = octavo("chats", "show", first["chat_id"]).stdout
    assert "Be brief." in shown
    assert [shown.count(f"{word}\n") for word in ("two", "three")] == [2, 2]
    [chat] = json.loads(octavo("chats", "--json").stdout)
    assert (chat["id"], chat["num_turns"]) == (first["chat_id"], 3)
    assert first["chat_id"] in octavo("chats").stdout


def test_a_chat_goes_on_with_its_own_model_unless_another_is_named(octavo: Run, echo: str) -> None:
    octavo("-m", echo, "one")
    assert json.loads(octavo("-c", "--json", "two").stdout)["model"] == echo
    done = octavo("-c", "-m", "echo", "--json", "three")
    assert (json.loads(done.stdout)["model"], done.stderr) == ("echo", "")
    assert json.loads(octavo("-c", "--json", "four").stdout)["model"] == echo
    octavo("engine", "stop", "-m", "echo")


def test_a_chat_whose_model_is_gone_goes_on_with_the_current_one_and_says_so(
    octavo: Run, echo: str, tmp_path: Path
) -> None:
    paths = Paths.below(tmp_path)
    paths.config_dir.mkdir()
    paths.config_file.write_text(f'model = "{echo}"\n')
    with Store(paths.store_file) as store:
        store.create_chat(title="Old", model="hf:Nobody/Nothing")
    done = octavo("-c", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr == (
        f"octavo: hf:Nobody/Nothing, which this chat was begun with, cannot be used here, so {echo} goes on. "
        "Fetch it: octavo models pull hf:Nobody/Nothing\n"
    )


def test_an_unstored_turn_leaves_no_trace(octavo: Run, echo: str) -> None:
    assert octavo("-m", echo, "-n", "hello").stdout == "hello\n"
    assert octavo("chats", "--json").stdout == "[]\n"


def test_ctrl_c_stops_the_turn_and_keeps_what_was_said(octavo: Run, echo: str, env: dict[str, str]) -> None:
    octavo("-m", echo, "-n", "start the host")
    with begin(command("-m", echo, LONG), env) as process:
        assert process.stdout
        said = process.stdout.read(10)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
    text = (said + rest).decode()
    assert (process.returncode, errors) == (130, b"")
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


def the_host(env: dict[str, str]) -> int:
    [host] = running_hosts(Paths.below(Path(env["OCTAVO_HOME"])))
    return host.pid


def test_chats_of_a_newer_version_are_listed_with_a_word_about_it(octavo: Run, tmp_path: Path) -> None:
    octavo("chats")
    with sqlite3.connect(tmp_path / "data/octavo.db") as store:
        store.execute("INSERT INTO migrations VALUES ('m999_later', 0)")
    done = octavo("chats", "--json")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert "written by a newer octavo" in done.stderr


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


def test_engine_status_start_and_stop(octavo: Run, echo: str) -> None:
    started = json.loads(octavo("engine", "start", "-m", echo, "--json").stdout)
    assert set(started) == {
        "model", "device", "attention", "dtype", "block_size", "blocks", "requests", "disk", "kv_bytes_per_token"
    }  # fmt: skip
    assert json.loads(octavo("engine", "status", "-m", echo, "--json").stdout)["model"] == echo
    assert "requests" in octavo("engine", "status", "-m", echo).stdout
    assert octavo("engine", "-m", echo, "--json").stdout == octavo("engine", "status", "-m", echo, "--json").stdout
    assert octavo("engine", "stop", "-m", "echo").stderr == "No engine of echo was running.\n"
    assert json.loads(octavo("engine", "stop", "--json").stdout) == {"stopped": [echo]}
    assert json.loads(octavo("engine", "stop", "--json").stdout) == {"stopped": []}


def test_engine_stop_finds_a_host_after_config_toml_was_edited_or_spoilt(
    octavo: Run, echo: str, tmp_path: Path
) -> None:
    octavo("engine", "start", "-m", echo)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.toml").write_text("block_size = oops")
    assert octavo("engine", "stop").stderr == f"The engine of {echo} has stopped.\n"


def test_stops_and_biases_are_given_one_by_one(octavo: Run, echo: str) -> None:
    options = ("-o", "stop", "three", "-o", "stop", "two", "-o", "logit_bias", "5:-100", "-o", "logit_bias", "6:1.5")
    assert octavo("-m", echo, *options, "one two three").stdout == "one \n"


@pytest.mark.parametrize("word", ["chats", "engine"])
def test_ask_takes_a_question_that_is_a_commands_name(octavo: Run, echo: str, word: str) -> None:
    assert octavo("ask", "-m", echo, word).stdout == f"{word}\n"
