"""The command line as its users meet it: real processes, exit codes, and nothing but the answer on stdout."""

import json
from pathlib import Path

import pytest
from tests.app.cli_stage import Run

from octavo.paths import Paths
from octavo_data import Store


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
