"""Law of the first paint: what a reader of the store imports."""

import subprocess
import sys
from pathlib import Path

from octavo_data import Store

HEAVY = {
    "torch",
    "transformers",
    "textual",
    "numpy",
    "sqlite_utils",
    "click",
    "ulid",
    "asyncio",
    "octavo",
    "octavo_engine",
}
READS = """
import sys
import octavo_data
from pathlib import Path
if len(sys.argv) > 1:
    with octavo_data.Store(Path(sys.argv[1])) as store:
        [store.turns(chat.id) for chat in store.chats()]
print(*sys.modules)
"""


def imported(*args: object) -> set[str]:
    command = [sys.executable, "-c", READS, *map(str, args)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported() & HEAVY == set()


def test_opening_and_reading_an_up_to_date_store_imports_nothing_heavy(tmp_path: Path) -> None:
    with Store(tmp_path / "octavo.db") as store:
        store.create_chat(title="t", model="m")
    assert imported(tmp_path / "octavo.db") & HEAVY == set()
