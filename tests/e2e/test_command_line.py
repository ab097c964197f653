"""The command line with the real default model, as a shell and a person at a terminal use it."""

import json
import os
import signal
import time
from collections.abc import Callable

import psutil
import pytest
from tests.e2e.conftest import MAX_MODEL_LEN, Home
from tests.e2e.terminal import DEADLINE_S, Terminal

from octavo_data import TurnStatus

pytestmark = [pytest.mark.model, pytest.mark.slow]

STORY = "Write a very long story about a lighthouse keeper and the sea."
Open = Callable[..., Terminal]


def hosts_of(home: Home) -> list[int]:
    """The processes that serve this home."""
    lines = [(process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [pid for pid, line in lines if "octavo.host" in line and any(str(home.folder) in word for word in line)]


def test_two_clients_that_come_at_once_share_the_host_that_they_start(home: Home) -> None:
    home.run("engine", "stop")
    assert hosts_of(home) == []
    asks = [home.begin("--json", "-n", "-o", "max_tokens", "8", f"Count to {number}.") for number in (5, 6)]
    for ask in asks:
        out, errors = ask.communicate()
        assert (ask.returncode, errors) == (0, "")
        assert json.loads(out)["usage"]["completion_tokens"] <= 8
    deadline = time.monotonic() + DEADLINE_S
    while (hosts := hosts_of(home)) != [home.host_pid]:  # one that came second was told to end, and may be on its way
        assert time.monotonic() < deadline, hosts
        time.sleep(0.05)


def test_json_has_the_answer_and_exactly_the_keys_of_the_contract(home: Home) -> None:
    answer = home.json("--json", "What is the capital of France?", "-o", "temperature", "0")
    assert "Paris" in answer["text"]
    assert set(answer) == {
        "text", "chat_id", "turn_id", "model", "stop_reason", "usage", "timings", "token_ids"
    }  # fmt: skip
    assert set(answer["usage"]) == {"prompt_tokens", "cached_tokens", "computed_tokens", "completion_tokens"}
    assert set(answer["timings"]) == {"queue_ms", "first_token_ms", "total_ms", "tokens_per_s"}
    assert (answer["model"], answer["stop_reason"]) == ("smollm2-135m", "stop")
    assert len(answer["token_ids"]) == answer["usage"]["completion_tokens"]


def test_the_second_turn_finds_the_first_ones_prompt_in_the_cache(home: Home) -> None:
    first = home.json("--json", "What is the capital of France?", "-o", "temperature", "0")
    second = home.json("--json", "-c", "And of Italy?", "-o", "temperature", "0")
    block_size = home.json("engine", "status", "--json")["block_size"]
    assert second["chat_id"] == first["chat_id"]
    assert second["usage"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - block_size
    assert second["usage"]["cached_tokens"] + second["usage"]["computed_tokens"] == second["usage"]["prompt_tokens"]


def test_engine_status_has_exactly_the_keys_of_the_contract(home: Home) -> None:
    home.run("engine", "start")
    status = home.json("engine", "status", "--json")
    assert set(status) == {
        "model", "device", "attention", "dtype", "block_size", "blocks", "requests", "disk", "kv_bytes_per_token"
    }  # fmt: skip
    assert set(status["blocks"]) == {"total", "free", "cached", "used", "shared"}
    assert set(status["requests"]) == {"running", "waiting"}
    assert set(status["disk"]) == {"blocks", "bytes"}
    assert sum(status["blocks"][state] for state in ("free", "cached", "used")) == status["blocks"]["total"]


def test_what_is_piped_in_comes_before_the_question(home: Home) -> None:
    done = home.run("What does this say?", "-o", "max_tokens", "4", stdin="The sea is calm.\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "The sea is calm.\n\nWhat does this say?" in home.last_turns()


def test_text_is_shown_before_the_end_and_ctrl_c_keeps_it(home: Home, open_terminal: Open) -> None:
    question = "Write a very long story about a shoemaker."
    terminal = open_terminal(home, question)
    terminal.until(lambda screen: len(screen.split()) > 5)
    assert home.last_turns()[question].status is TurnStatus.RUNNING
    terminal.press("ctrl+c")
    assert terminal.wait() == 130
    turn = home.last_turns()[question]
    assert (turn.status, turn.stop_reason) == (TurnStatus.STOPPED, "aborted")
    assert len(turn.reply.split()) > 5
    assert "".join(turn.reply.split()) == "".join(terminal.screen.replace("^C", "").split())


def test_a_prompt_longer_than_the_context_is_refused_with_three_numbers(home: Home) -> None:
    before = home.last_turns()
    done = home.run("word " * 2 * MAX_MODEL_LEN)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    numbers = [int(word.strip(",;.")) for word in done.stderr.split() if word.strip(",;.").isdecimal()]
    blocks, size = (home.json("engine", "status", "--json")[key] for key in ("blocks", "block_size"))
    assert len(numbers) == 3
    assert numbers[0] > 2 * MAX_MODEL_LEN
    assert numbers[1:] == [MAX_MODEL_LEN, blocks["total"] * size]
    assert home.last_turns() == before


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("--colour", ["--colour"]), ("warmth", ["-o", "warmth", "1"]), ("smollm3-9b", ["-m", "smollm3-9b"])],
)
def test_an_unknown_option_or_model_is_a_usage_error_that_names_it(home: Home, name: str, arguments: list[str]) -> None:
    done = home.run(*arguments, "Hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr


def test_a_host_that_dies_mid_reply_is_told_and_the_next_question_starts_another(
    home: Home, open_terminal: Open
) -> None:
    terminal = open_terminal(home, STORY)
    terminal.until(lambda screen: len(screen.split()) > 5)
    dead = home.host_pid
    os.kill(dead, signal.SIGKILL)
    assert terminal.wait() == 1
    assert terminal.screen.strip().splitlines()[-1].startswith("octavo: The host went away. ")

    answer = home.json("--json", "What is the capital of France?", "-o", "temperature", "0")
    assert "Paris" in answer["text"]
    assert home.host_pid != dead
    assert home.last_turns()[STORY].status is TurnStatus.INTERRUPTED
