"""What the benchmarks promise: fixed work, the figures that are asked for, one line for what cannot run."""

import json

import pytest
from click.testing import CliRunner

from octavo.bench import planning, store
from octavo.bench.results import Result, to_lines
from octavo.bench.sharing import bench_prefix
from octavo.bench.workloads import SHAPES, WORKLOADS, chats, workload
from octavo.cli.bench import HELP, command
from octavo_engine.echo import load_echo


def test_every_workload_has_a_line_of_help_and_gives_the_same_ids_again() -> None:
    assert set(WORKLOADS) < set(HELP)
    for name in WORKLOADS:
        assert workload(name) == workload(name)
    assert chats() == chats()
    assert set(SHAPES) == {"qwen3-0.6b", "llama-1b", "llama-7b"}


def test_blocks_of_16_waste_less_than_a_twentieth() -> None:
    waste = {(r.more["block size"], r.more["prompt"]): float(r.more["paged %"]) for r in planning.bench_waste()}
    assert max(share for (size, _), share in waste.items() if size == 16) < 5
    assert max(share for (size, _), share in waste.items() if size == 256) > 20  # why blocks of 256 share inside


def test_the_cost_of_planning_is_a_time() -> None:
    assert 0 < planning._step_us(2, 64) < 1e6


def test_99_of_100_prefixes_are_not_computed() -> None:
    loaded = load_echo()
    shared, alone = bench_prefix("echo", loaded)
    assert (shared.more["prefix saved %"], alone.more["prefix saved %"]) == (99.0, 0.0)


def test_results_with_the_same_figures_are_lines_of_one_table() -> None:
    single = Result(work="single", model="m", out_tps=1234.5, more={"what": "a chat", "seconds": 0.25})
    start = Result(work="start", model="m", more={"seconds": 999.7}, parts=[{"part": "weights", "%": 60.0}])
    assert list(to_lines([single, single, start, start])) == [
        "work       model          out tok/s  seconds  what",
        "single     m                  1,234     0.25  a chat",
        "single     m                  1,234     0.25  a chat",
        "",
        "work       model          seconds",
        "start      m                1,000",
        "        %  part",
        "       60  weights",
        "",
        "work       model          seconds",
        "start      m                1,000",
        "        %  part",
        "       60  weights",
    ]


def test_a_result_is_a_flat_object_but_for_its_parts() -> None:
    result = Result(work="single", model="m", out_tps=1234.5, more={"seconds": 0.25})
    parts = Result(work="single", model="m", parts=[{"%": 60.0}]).to_json()["parts"]
    assert parts == [{"%": 60.0}]
    assert result.to_json() == {
        "work": "single",
        "model": "m",
        "out_tps": 1234.5,
        "rps": None,
        "first_token_ms": None,
        "seconds": 0.25,
    }


def test_json_has_every_result_in_one_list() -> None:
    done = CliRunner().invoke(command, ["waste", "--json"])
    results = json.loads(done.output)
    assert len(results) == 10
    assert {"work", "model", "out_tps", "rps", "first_token_ms"} <= results[0].keys()


def test_the_store_is_measured_in_a_small_and_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SIZES", ((40, 3), (60, 5)))
    monkeypatch.setattr(store, "LONGEST", 20)
    monkeypatch.setattr(store, "NUM_REPEATS", 2)
    figures = {(result.more["turns"], result.more["what"]): result.more for result in store.bench_store()}
    rows = {key: more["rows"] for key, more in figures.items() if "rows" in more}
    assert [rows[size, "list all chats"] for size in (40, 60)] == [3, 5]
    assert [rows[size, "open the chat of 20 turns"] for size in (40, 60)] == [20, 20]
    assert [rows[size, "search a rare word"] for size in (40, 60)] == [1, 1]
    assert [rows[size, "search a common word"] for size in (40, 60)] == [20, 20]
    assert all(more["median ms"] > 0 for more in figures.values() if "rows" in more)  # type: ignore[operator]
