"""What torch tells of a device: how fast it copies, and what of a step takes its time."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch.profiler import DeviceType, ProfilerActivity, profile

from octavo.bench.results import Figures

COPIED_BYTES, NUM_COPIES, NUM_ROUNDS = 256 << 20, 32, 3
"""Many times what the caches of a device hold."""
NUM_SHOWN = 12
NAME_WIDTH = 60
"""What a terminal of 100 columns has left beside the figures."""
NOTHING_SEEN = "(the profiler saw nothing; KINETO_LOG_LEVEL=2 says why)"
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::|cutlass::")


@dataclass(frozen=True, slots=True)
class _Ran:
    """All calls of a kernel or an operator, and the microseconds that they took together, without what they called."""

    name: str
    calls: int
    us: float


def copied_per_s(device: torch.device) -> float:
    """Bytes that a large copy within the device's memory reads and writes in a second."""
    source = torch.rand(COPIED_BYTES // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    target.copy_(source)  # pages that nobody has written to before are slow on a CPU
    seconds = median(_copy_seconds(source, target) for _ in range(NUM_ROUNDS))
    return 2 * source.nbytes * NUM_COPIES / seconds


def _copy_seconds(source: torch.Tensor, target: torch.Tensor) -> float:
    _wait_for(source.device)
    begin = time.perf_counter()
    for _ in range(NUM_COPIES):
        target.copy_(source)
    _wait_for(source.device)
    return time.perf_counter() - begin


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def parts_of(work: Callable[[], object], num_steps: int, step_us: float, device: torch.device) -> list[Figures]:
    """What takes the time of a step, by kernel on CUDA, else by operator, and what is left of it between them.

    `work` does `num_steps` steps, each of which takes `step_us` while no profiler looks on.
    """
    ran = _profile(work, is_cuda=device.type == "cuda")
    first, rest = ran[:NUM_SHOWN], ran[NUM_SHOWN:]
    if rest:
        first.append(_Ran(f"({len(rest)} others)", sum(r.calls for r in rest), sum(r.us for r in rest)))
    left = max(0.0, step_us * num_steps - sum(r.us for r in ran))
    first.append(_Ran("(between them)" if ran else NOTHING_SEEN, 0, left))
    return [_figures(r, num_steps, step_us) for r in first]


def _figures(ran: _Ran, num_steps: int, step_us: float) -> Figures:
    us = ran.us / num_steps
    share = round(100 * us / step_us, 1)
    return {"calls a step": ran.calls / num_steps, "us a step": us, "share %": share, "what": short(ran.name)}


def _profile(work: Callable[[], object], *, is_cuda: bool) -> list[_Ran]:
    """What ran, that which took the longest first; on CUDA without what the CPU does to launch it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or each profile is told of on stderr
    activity = ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:  # or torch 2.11 warns of cycles, where none are
        work()
    kind = DeviceType.CUDA if is_cuda else DeviceType.CPU
    events = [event for event in profiler.key_averages() if event.device_type == kind]
    ran = [_Ran(e.key, e.count, e.self_device_time_total if is_cuda else e.self_cpu_time_total) for e in events]
    return sorted(ran, key=lambda r: -r.us)


def short(name: str) -> str:
    """A kernel's name without what does not tell it from others, cut to fit."""
    name = _NOISE.sub("", name)
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
