"""Random numbers that depend on a request's seed and position alone, for all rows at once."""

import torch

_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)  # SplitMix64's, as signed 64-bit integers
_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer


def uniform(seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """A number in [0, 1) for each (seed, position), (rows,) each: a hash, so a draw depends on nothing else.

    SplitMix64 (Steele, Lea, Flood 2014) over the seed, advanced by the position; 24 bits fill a float32 exactly.
    """
    state = _mix(seed + _GOLDEN) + (position + 1) * _GOLDEN
    return _shift_right(_mix(state), 40).float() * 2.0**-24


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shift_right(z, 30)) * _MULTIPLIERS[0]
    z = (z ^ _shift_right(z, 27)) * _MULTIPLIERS[1]
    return z ^ _shift_right(z, 31)


def _shift_right(z: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift; torch's own on int64 copies the sign down."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
