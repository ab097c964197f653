"""Which benchmark a name stands for; models are loaded once for all that share them."""

from collections.abc import Callable, Iterator, Sequence

from octavo.bench import planning, sharing, throughput
from octavo.bench.models import load_for_bench
from octavo.bench.results import Result
from octavo.config import Settings
from octavo.paths import Paths
from octavo_engine.config import EngineConfig
from octavo_engine.loaded import Loaded

Load = Callable[[EngineConfig], Loaded]

WITHOUT_MODEL: dict[str, Callable[[], list[Result]]] = {
    "planning": planning.bench_planning,
    "waste": planning.bench_waste,
}
WITH_MODEL: dict[str, Callable[[str, Loaded], list[Result]]] = {
    "chats": throughput.bench_chats,
    "fork": sharing.bench_fork,
    "abort": sharing.bench_abort,
}


def run_all(names: Sequence[str], model: str, settings: Settings, paths: Paths) -> Iterator[Result]:
    """The results of each name, as they come. Raises what loading a model raises."""
    config = EngineConfig(**settings.engine_settings())

    def load(config: EngineConfig) -> Loaded:
        return load_for_bench(model, config, paths)

    for name in names:
        yield from _run(name, model, load, config)


def _run(name: str, model: str, load: Load, config: EngineConfig) -> list[Result]:
    if name in WITHOUT_MODEL:
        return WITHOUT_MODEL[name]()
    if name == "prefix":
        return sharing.bench_prefix(model, load, config)
    loaded = load(config)
    if name in WITH_MODEL:
        return WITH_MODEL[name](model, loaded)
    return throughput.bench_workload(name, model, loaded)
