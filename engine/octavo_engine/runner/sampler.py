"""Picks the next ids from logits, all rows at once, each row with its own parameters and its own random stream."""

from dataclasses import dataclass

import torch

from octavo_engine.sequence import Sequence

_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)  # SplitMix64's, as signed 64-bit integers
_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """The parameters of each sampling row as tensors, (rows,) each."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    seed: torch.Tensor
    position: torch.Tensor

    @classmethod
    def of(cls, sequences: list[Sequence], device: torch.device) -> "SamplingBatch":
        params = [sequence.params for sequence in sequences]
        return cls(
            temperature=torch.tensor([p.temperature for p in params], device=device),
            top_k=torch.tensor([p.top_k for p in params], device=device),
            top_p=torch.tensor([p.top_p for p in params], device=device),
            seed=torch.tensor([s.seed for s in sequences], device=device),
            position=torch.tensor([s.num_replied for s in sequences], device=device),
        )


def sample(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
    """Draw one id a row, (rows,), from logits, (rows, vocabulary). Temperature 0 takes the largest logit."""
    greedy = logits.argmax(-1)
    is_greedy = batch.temperature == 0
    if bool(is_greedy.all()):
        return greedy
    scaled = logits.float() / batch.temperature.clamp(min=1e-5)[:, None]
    probs, ids = scaled.softmax(-1).sort(stable=True, dim=-1, descending=True)
    kept = keep_most_likely(probs, batch.top_k, batch.top_p)
    cumulative = kept.cumsum(-1)
    target = uniform(batch.seed, batch.position)[:, None] * cumulative[:, -1:]
    # the last id with any probability bounds the draw: rounding may leave the target at the very end
    last = (kept > 0).sum(-1, keepdim=True) - 1
    drawn = ids.gather(-1, torch.searchsorted(cumulative, target, right=True).minimum(last))[:, 0]
    return torch.where(is_greedy, greedy, drawn)


def keep_most_likely(probs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zero what the filters drop of probs, (rows, vocabulary), sorted from the likeliest down; not renormalised.

    top-p keeps the smallest set whose sum reaches p, so an id stays while the sum before it is below p.
    """
    rank = torch.arange(probs.shape[-1], device=probs.device)
    is_kept = (top_k[:, None] == 0) | (rank < top_k[:, None])
    probs = probs * is_kept
    total = probs.sum(-1, keepdim=True)
    before = probs.cumsum(-1) - probs
    return probs * ((before < top_p[:, None] * total) | (top_p[:, None] >= 1))


def uniform(seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """A number in [0, 1) for each (seed, position), (rows,) each: a hash, so a draw depends on nothing else.

    SplitMix64 (Steele, Lea, Flood 2014) over the seed, advanced by the position; 24 bits fill a float32 exactly.
    """
    state = _mix(seed + _GOLDEN) + (position + 1) * _GOLDEN
    bits = _mix(state)
    return _shift_right(bits, 40).float() * 2.0**-24


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shift_right(z, 30)) * _MULTIPLIERS[0]
    z = (z ^ _shift_right(z, 27)) * _MULTIPLIERS[1]
    return z ^ _shift_right(z, 31)


def _shift_right(z: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift; torch's own on int64 copies the sign down."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
