"""Which benchmark a name stands for; models are loaded once for all that share them."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from octavo.bench import planning, restart, sharing, steps, store, throughput
from octavo.bench.models import load_for_bench
from octavo.bench.results import Result
from octavo.config import Settings
from octavo.paths import Paths
from octavo_engine.config import EngineConfig
from octavo_engine.loaded import Loaded

WITHOUT_MODEL: dict[str, Callable[[], Iterable[Result]]] = {
    "planning": planning.bench_planning,
    "waste": planning.bench_waste,
    "store": store.bench_store,
}
WITH_MODEL: dict[str, Callable[[str, Loaded], Iterable[Result]]] = {
    "prefix": sharing.bench_prefix,
    "chats": throughput.bench_chats,
    "fork": sharing.bench_fork,
    "abort": sharing.bench_abort,
}
WITH_HOST: dict[str, Callable[[str, Settings, Paths], list[Result]]] = {"restart": restart.bench_restart}


def run_all(names: Sequence[str], model: str, settings: Settings, paths: Paths, cases: steps.Cases) -> Iterator[Result]:
    """The results of each name, as they come; the model is loaded once. `cases` are those of `step`.

    Raises what loading a model raises.
    """
    config = EngineConfig(**settings.engine_settings())
    with_model = WITH_MODEL | {"step": partial(steps.bench_step, cases)}
    loaded: Loaded | None = None
    for name in names:
        if name in WITHOUT_MODEL:
            yield from WITHOUT_MODEL[name]()
            continue
        if name in WITH_HOST:
            yield from WITH_HOST[name](model, settings, paths)
            continue
        if loaded is None:
            begin = time.perf_counter()
            loaded = load_for_bench(model, config, paths)
            yield Result(work="start", model=model, more={"seconds to ready": time.perf_counter() - begin})
        loaded.engine.clear_cache()
        yield from with_model.get(name, partial(throughput.bench_workload, name))(model, loaded)
