"""What changes logits before anything is drawn: penalties for seen ids, biases, and ids that may not come yet."""

import weakref

import torch

from octavo_engine.sequence import Sequence


class TokenCounts:
    """Which ids each sequence has seen, one row of a table a sequence; only for sequences with penalties.

    A row is given back when its sequence is forgotten by everybody else.
    """

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self._in_prompt = torch.zeros(0, vocabulary, dtype=torch.bool, device=device)
        self._in_reply = torch.zeros(0, vocabulary, dtype=torch.int32, device=device)
        self._rows: weakref.WeakKeyDictionary[Sequence, int] = weakref.WeakKeyDictionary()
        self._num_counted: weakref.WeakKeyDictionary[Sequence, int] = weakref.WeakKeyDictionary()
        self._free: list[int] = []

    def penalise(self, logits: torch.Tensor, numbers: list[int], sequences: list[Sequence]) -> None:
        """Change the rows `numbers` of logits, (rows, vocabulary), in place; they belong to `sequences`."""
        device = logits.device
        rows = torch.tensor(self._update(sequences), device=device)
        params = [sequence.params for sequence in sequences]
        repetition = torch.tensor([[p.repetition_penalty] for p in params], device=device)
        presence = torch.tensor([[p.presence_penalty] for p in params], device=device)
        frequency = torch.tensor([[p.frequency_penalty] for p in params], device=device)
        index = torch.tensor(numbers, device=device)
        counts = self._in_reply[rows]
        is_seen = self._in_prompt[rows] | (counts > 0)
        chosen = logits[index]
        repeated = torch.where(chosen > 0, chosen / repetition, chosen * repetition)
        chosen = torch.where(is_seen, repeated, chosen)
        logits[index] = chosen - presence * (counts > 0) - frequency * counts

    def _update(self, sequences: list[Sequence]) -> list[int]:
        """Count each sequence's newest id, and all ids of a new one.

        One is sampled between two calls, or none when a step is run again.
        """
        old = [s for s in sequences if self._num_counted.get(s, len(s.token_ids)) < len(s.token_ids)]
        if old:
            rows = torch.tensor([self._rows[s] for s in old], device=self._in_reply.device)
            newest = torch.tensor([s.token_ids[-1] for s in old], device=self._in_reply.device)
            self._in_reply[rows, newest] += 1
        self._num_counted.update((s, len(s.token_ids)) for s in sequences)
        return [self._rows[s] if s in self._rows else self._add(s) for s in sequences]

    def _add(self, sequence: Sequence) -> int:
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._rows[sequence] = row
        weakref.finalize(sequence, self._free.append, row)
        device = self._in_reply.device
        prompt, reply = sequence.token_ids[: sequence.num_prompt], sequence.token_ids[sequence.num_prompt :]
        self._in_prompt[row] = False
        self._in_prompt[row, torch.tensor(prompt, device=device)] = True
        self._in_reply[row] = torch.bincount(
            torch.tensor(reply, dtype=torch.int64, device=device), minlength=self._in_reply.shape[1]
        )
        return row

    def _grow(self) -> None:
        size = len(self._in_reply)
        more = max(8, size)
        self._in_prompt = torch.cat([self._in_prompt, self._in_prompt.new_zeros(more, self._in_prompt.shape[1])])
        self._in_reply = torch.cat([self._in_reply, self._in_reply.new_zeros(more, self._in_reply.shape[1])])
        self._free.extend(range(size, size + more))


def add_biases(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    """Add each row's logit_bias to logits, (rows, vocabulary), and forbid its stop ids before min_tokens, in place."""
    changes = [
        (row, token_id, bias)
        for row, sequence in enumerate(sequences)
        for token_id, bias in (*sequence.params.logit_bias.items(), *_forbidden(sequence))
    ]
    if changes:
        rows, ids, biases = zip(*changes, strict=True)
        device = logits.device
        logits.index_put_(
            (torch.tensor(rows, device=device), torch.tensor(ids, device=device)),
            torch.tensor(biases, dtype=logits.dtype, device=device),
            accumulate=True,
        )


def _forbidden(sequence: Sequence) -> list[tuple[int, float]]:
    if sequence.num_replied >= sequence.params.min_tokens:
        return []
    return [(token_id, float("-inf")) for token_id in sequence.stop_ids]
