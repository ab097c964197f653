"""Fetches what is needed of a Hugging Face Hub repository, in a child process that can be stopped at any time."""

import os
import shutil
from pathlib import Path

from octavo.models.progress import Progress, Step
from octavo.models.work import all_files_bytes, run_child

REVISION_FILE = "revision.txt"  # notes that the child leaves in its work folder
TOTAL_FILE = "total.txt"


def fetch_repo(repo: str, work: Path, target: Path, progress: Progress) -> str:
    """Download ORG/REPO into `target`, notes into `work`; returns the commit. Raises PullError."""

    def poll() -> None:
        total_file = work / TOTAL_FILE
        total = int(total_file.read_text() or 0) if total_file.is_file() else 0
        progress(Step(f"Downloading {repo}", min(all_files_bytes(target), total), total or None))

    env = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    run_child("octavo.models.hub_job", [repo, str(work), str(target)], work / "hub.log", poll, env)
    shutil.rmtree(target / ".cache", ignore_errors=True)
    return (work / REVISION_FILE).read_text()
