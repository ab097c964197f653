"""Turns a GGUF file into a folder that transformers loads, in a child process: this one never imports torch."""

import os
from pathlib import Path

from octavo.models.progress import Progress, Step
from octavo.models.work import run_child


def convert_gguf(gguf: Path, label: str, target: Path, work: Path, progress: Progress) -> None:
    """Write weights, config, tokenizer and chat template of `gguf` into the folder `target`; raises PullError."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    step = Step(f"Converting {label}")
    arguments = [str(gguf), str(target)]
    run_child("octavo.models.convert_job", arguments, work / "convert.log", lambda: progress(step), env)
