"""How much CPU time it takes until Octavo shows something: `octavo --help`, and the import of the terminal UI."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

CASES = {
    "octavo --help": ["-m", "octavo", "--help"],
    "import octavo.ui.app": ["-c", "import octavo.ui.app"],
}


def cpu_ms(arguments: list[str]) -> float:
    """CPU time of one run, user and system, in ms; raises CalledProcessError when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-P", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(arguments: list[str], repeats: int) -> dict[str, float]:
    """Median and best of `repeats` runs in ms, after one run that fills the disk cache."""
    cpu_ms(arguments)
    runs = [cpu_ms(arguments) for _ in range(repeats)]
    return {"median_cpu_ms": round(statistics.median(runs), 1), "best_cpu_ms": round(min(runs), 1)}


def main() -> None:
    """Print a table, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="scripts/bench startup", description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {name: measure(arguments, options.repeats) for name, arguments in CASES.items()}
    if options.json:
        print(json.dumps(results))
        return
    print(f"{'':24}{'median':>10}{'best':>10}   (ms of CPU)")
    for name, result in results.items():
        print(f"{name:24}{result['median_cpu_ms']:10.0f}{result['best_cpu_ms']:10.0f}")


if __name__ == "__main__":
    main()
