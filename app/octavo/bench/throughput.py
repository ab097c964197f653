"""The workloads that peers are measured on, cold and then a second time."""

from statistics import median

from octavo.bench.drive import Run, drive
from octavo.bench.results import Result
from octavo.bench.workloads import Chats, Request, chats, workload
from octavo_engine.loaded import Loaded

WARM_UP = [Request(list(range(200, 264)), 8)] * 2


def bench_workload(name: str, model: str, loaded: Loaded) -> list[Result]:
    """One of workloads.WORKLOADS: the first run computes every prompt, the second finds them cached."""
    requests = workload(name)
    drive(loaded.engine, WARM_UP)
    return [
        _result(name, model, drive(loaded.engine, requests)),
        _result(f"{name}/2nd", model, drive(loaded.engine, requests)),
    ]


def _result(work: str, model: str, run: Run) -> Result:
    return Result(
        work=work,
        model=model,
        out_tps=run.num_output / run.seconds,
        rps=len(run.finished) / run.seconds,
        first_token_ms=run.first_token_ms,
        more={"seconds": run.seconds, "computed prompt tokens": run.num_computed},
    )


def bench_chats(model: str, loaded: Loaded) -> list[Result]:
    """Eight chats of four turns; the first token is the median over turns 2 to 4."""
    drive(loaded.engine, WARM_UP)
    case = chats()
    runs = list(_turns(case, loaded))
    seconds, num_output = sum(run.seconds for run in runs), sum(run.num_output for run in runs)
    later = [done.timings.first_token_ms for run in runs[1:] for done in run.finished]
    return [
        Result(
            work="chats",
            model=model,
            out_tps=num_output / seconds,
            rps=sum(len(run.finished) for run in runs) / seconds,
            first_token_ms=median(later),
            more={"seconds": seconds, "computed prompt tokens": sum(run.num_computed for run in runs)},
        )
    ]


def _turns(case: Chats, loaded: Loaded) -> list[Run]:
    histories = [list(case.system) for _ in case.fragments]
    runs = []
    for turn in range(len(case.fragments[0])):
        for history, fragments in zip(histories, case.fragments, strict=True):
            history += fragments[turn]
        run = drive(loaded.engine, [Request(list(history), case.num_output) for history in histories])
        for history, reply in zip(histories, run.replies, strict=True):
            history += reply
        runs.append(run)
    return runs
