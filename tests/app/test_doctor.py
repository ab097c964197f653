"""`octavo doctor`: each check says how a thing is, and a remedy where it is not well."""

import asyncio
import json
import os
import shutil
import sys
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.app.host_stage import host_stage

from octavo.cli.main import run
from octavo.config import Settings
from octavo.doctor import inference, machine
from octavo.doctor.findings import Finding, State, run_checks
from octavo.doctor.inference import Outlook
from octavo.errors import ConfigError, HostError, ModelMissingError
from octavo.host_lock import try_lock
from octavo.paths import Paths
from octavo_engine.config import EngineConfig
from octavo_engine.runner.choice import AttentionChoice
from octavo_engine.runner.forecast import Device, Forecast

Usage = namedtuple("Usage", "total used free")
GB = 10**9


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path))
    return Paths.below(tmp_path)


def write_config(paths: Paths, text: str) -> None:
    paths.config_dir.mkdir(parents=True)
    paths.config_file.write_text(text)


# ---- the report ----


def test_what_must_work_and_does_not_is_exit_code_1(home: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["is_healthy"]
    wrong = [finding for finding in report["findings"] if finding["state"] == "wrong"]
    assert [(finding["topic"], finding["remedy"]) for finding in wrong] == [
        ("model", "Fetch it: octavo models pull smollm2-135m")
    ]


def test_a_healthy_installation_is_exit_code_0_and_one_line_for_each_topic(
    home: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(home, 'model = "echo"\n')
    assert run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    topics = [line.split()[1] for line in lines if line.startswith(("ok ", "hint "))]
    assert topics == [
        "program", "packages", "settings", "folders", "disk", "terminal", "model", "host",
        "device", "dtype", "attention", "path", "memory",
    ]  # fmt: skip
    assert lines[-1].startswith(("All is well", "Octavo can run"))


def test_a_mistake_in_the_config_is_one_finding_and_the_others_go_on(
    home: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(home, "blok_size = 3\n")
    assert run(["doctor", "--json", "-m", "echo"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [f["remedy"] for f in findings if f["state"] == "wrong"] == ['Did you mean "block_size"?']
    assert len(findings) == 13


def test_a_wrong_model_name_is_wrong_usage(home: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "-m", "smollm2"]) == 2
    assert 'Did you mean "smollm2-135m"?' in capsys.readouterr().err


def test_a_check_that_fails_is_a_finding_and_the_others_go_on() -> None:
    def fail() -> Finding:
        raise ZeroDivisionError("oh")

    def refuse() -> Finding:
        raise HostError("It is asleep", "Wake it.")

    found = list(run_checks([("a", fail), ("b", refuse), ("c", machine.check_program)]))
    assert [(f.topic, f.state, f.remedy) for f in found[:2]] == [("a", State.WRONG, ""), ("b", State.WRONG, "Wake it.")]
    assert "ZeroDivisionError" in found[0].text
    assert found[2].topic == "program"


# ---- the machine ----


def test_a_needed_package_that_is_missing_is_wrong_and_a_welcome_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.11", "transformers": "5.17", "textual": "6"}
    monkeypatch.setattr(machine, "_version", lambda name: versions.get(name, ""))
    assert machine.check_packages() == Finding(
        "packages", State.OK, "torch 2.11, transformers 5.17, textual 6; without triton, flash-attn, llguidance"
    )
    del versions["textual"]
    found = machine.check_packages()
    assert found.state is State.WRONG
    assert found.text.startswith("textual not installed")


@pytest.mark.parametrize(("text", "words"), [
    ('attention = "fast"', "attention is 'fast'; it must be one of auto, flash, sdpa"),
    ("max_num_seqs = 300\nmax_num_batched_tokens = 200", "at least max_num_seqs"),
    ('model = "smollm2"', '"smollm2" is no model name'),
    ("model =", "cannot be read"),
])  # fmt: skip
def test_every_mistake_in_the_config_is_found(paths: Paths, text: str, words: str) -> None:
    write_config(paths, text)
    with pytest.raises(ConfigError, match=words):
        machine.check_settings(paths)


def test_a_config_without_mistakes_and_none_at_all_are_fine(paths: Paths) -> None:
    assert machine.check_settings(paths).text.startswith("all defaults")
    write_config(paths, "idle_minutes = 5")
    assert machine.check_settings(paths).text.endswith("has no mistakes")


def test_a_folder_that_cannot_be_written_is_named(paths: Paths) -> None:
    assert machine.check_folders(paths).state is State.OK
    paths.data_dir.parent.mkdir(parents=True)
    paths.data_dir.touch()  # a file stands in its place
    found = machine.check_folders(paths)
    assert found.state is State.WRONG
    assert str(paths.data_dir) in found.text
    assert "OCTAVO_HOME" in found.remedy


@pytest.mark.parametrize(("free", "state"), [(10 * GB, State.OK), (GB, State.HINT), (50 * 10**6, State.WRONG)])
def test_a_disk_that_fills_up_is_told_before_it_is_full(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, free: int, state: State
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(20 * GB, 20 * GB - free, free))
    found = machine.check_disk(paths)
    assert found.state is state
    assert bool(found.remedy) == (state is not State.OK)


def test_a_model_that_is_not_here_says_how_to_fetch_it(paths: Paths) -> None:
    with pytest.raises(ModelMissingError) as caught:
        machine.check_model(Settings(), paths)
    assert caught.value.remedy == "Fetch it: octavo models pull smollm2-135m"
    assert machine.check_model(Settings(model="echo"), paths).state is State.OK


async def test_a_host_is_seen_in_every_state() -> None:
    async with host_stage() as stage:
        settings = Settings(model="echo:1")

        async def look(chosen: Settings) -> Finding:
            return await asyncio.to_thread(machine.check_host, chosen, stage.paths)

        assert (await look(settings)).text.startswith("none runs")
        client = await stage.connect("echo:1")
        await client.wait_ready()
        assert (await look(settings)).text == f"process {client.pid} runs echo:1 and is ready"
        assert (await look(Settings(model="echo:2"))).text.startswith("runs for echo:1; these settings would start")


def test_a_host_that_does_not_say_who_it_is_is_wrong(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    lock = paths.lock("strange")
    with try_lock(lock), pytest.raises(HostError, match="does not say who holds it"):
        machine.check_host(Settings(model="echo"), paths)


# ---- the terminal ----


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    return monkeypatch


@pytest.mark.parametrize(("env", "state", "words"), [
    ({"TERM": "xterm-256color"}, State.OK, "256 colours; copying asks the terminal"),
    ({"TERM": "xterm-kitty", "COLORTERM": "truecolor"}, State.OK, "16 million colours"),
    ({"TERM": "xterm-256color", "NO_COLOR": "1"}, State.OK, "no colours"),
    ({"TERM": "dumb"}, State.HINT, "draws no UI"),
    ({}, State.HINT, "draws no UI"),
])  # fmt: skip
def test_the_terminal_is_described(terminal: pytest.MonkeyPatch, env: dict[str, str], state: State, words: str) -> None:
    found = machine.check_terminal(env)
    assert found.state is state
    assert words in found.text


@pytest.mark.parametrize(("answer", "state"), [("on", State.OK), ("external", State.HINT), ("", State.HINT)])
def test_a_tmux_that_keeps_copies_to_itself_is_told_with_the_remedy(
    terminal: pytest.MonkeyPatch, tmp_path: Path, answer: str, state: State
) -> None:
    tmux = tmp_path / "tmux"
    tmux.write_text(f"#!/bin/sh\necho {answer}\n")
    tmux.chmod(0o755)
    terminal.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = machine.check_terminal({"TERM": "tmux-256color", "TMUX": "x"})
    assert found.state is state
    assert found.remedy == ("" if answer == "on" else "tmux set -g set-clipboard on")


def test_a_pipe_is_no_fault() -> None:
    assert machine.check_terminal({"TERM": "dumb"}).state is State.OK


# ---- the engine ----

SDPA = AttentionChoice("sdpa", "flash-attn is not installed", is_slow=True, remedy="pip install 'octavo[flash]'")


FORECAST = Forecast("LlamaForCausalLM", SDPA, "", 2 * GB, 4096, GB)
OUTLOOK = Outlook(Device("cuda", "NVIDIA H200", 100 * GB, 90 * GB), "bfloat16", False, SDPA, FORECAST)


def outlook(**changes: Any) -> Outlook:
    return replace(OUTLOOK, **changes)


def test_the_reason_and_the_remedy_of_the_attention_are_the_engines_own() -> None:
    assert inference.check_attention(outlook()) == Finding(
        "attention", State.HINT, "sdpa, because flash-attn is not installed", "pip install 'octavo[flash]'"
    )


def test_who_chose_the_dtype_is_said() -> None:
    assert inference.check_dtype(outlook()).text.endswith("the best that cuda has")
    assert inference.check_dtype(outlook(is_dtype_set=True)).text.endswith("as the setting dtype says")


def test_attention_that_the_engine_would_refuse_is_wrong() -> None:
    found = inference.look_ahead(None, EngineConfig(attention="flash"))
    assert inference.check_attention(found).state is State.WRONG
    assert "set to flash, but flash-attn" in inference.check_attention(found).text


def test_a_gpu_that_torch_does_not_see_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = outlook(device=Device("cpu", "2 cores", 8 * GB, 4 * GB))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert inference.check_device(cpu).state is State.OK
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    assert inference.check_device(cpu).state is State.HINT


def test_the_path_is_foretold_where_it_can_be() -> None:
    assert inference.check_path(outlook()).text.startswith("fast for LlamaForCausalLM, if its numbers agree")
    general = Forecast("Gemma2ForCausalLM", SDPA, "its attention is windowed", 1, 1, 1)
    assert inference.check_path(outlook(forecast=general)).text.endswith("its attention is windowed")
    unknown = outlook(forecast=None, problem="only loading the model can tell")
    assert inference.check_path(unknown) == Finding(
        "path", State.OK, "general or fast: only loading the model can tell"
    )
    refused = outlook(forecast=None, problem="MambaForCausalLM cannot run here: why", is_refused=True)
    assert inference.check_path(refused).state is State.WRONG


def test_a_model_that_does_not_fit_is_told_before_it_is_loaded() -> None:
    assert inference.check_memory(outlook()).state is State.OK
    full = outlook(device=Device("cuda", "small", 4 * GB, 2 * GB))
    found = inference.check_memory(full)
    assert found.state is State.HINT
    assert found.text == "weights take 2.0 GB, one context of 4,096 tokens 1.0 GB; 2.0 GB are free"
