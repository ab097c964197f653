"""Routes a transformers model's attention to a backend of ours, and finds out what the model asks of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel

from octavo_engine.batch import Batch
from octavo_engine.errors import ModelError
from octavo_engine.runner.attention import AttentionBackend, AttentionSpec, scores_times_values
from octavo_engine.runner.kv_cache import KVShape

ATTENTION_NAME = "octavo"
NOT_ROUTED = "its layers do not use transformers' registered attention, so their KV would be lost"
UNSUPPORTED_ARGUMENTS = {"s_aux": "attention sinks", "position_bias": "a position bias on the scores"}


def register() -> None:
    """Make the name known to transformers; calling it again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, _attend)


def set_backend(model: PreTrainedModel, backend: AttentionBackend) -> None:
    """From now on the attention of `model` goes to `backend`."""
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            module.octavo_backend = backend  # type: ignore[assignment]


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The signature that transformers calls: tensors of (1, heads, T, dim) in, (1, T, heads, dim) out."""
    _refuse_unsupported(kwargs)
    spec = AttentionSpec(
        layer=module.layer_idx,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=softcap,
        sliding_window=sliding_window,
    )
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return module.octavo_backend.attend(q, k, v, spec)[None], None


def _refuse_unsupported(kwargs: dict[str, Any]) -> None:
    for name, meaning in UNSUPPORTED_ARGUMENTS.items():
        if kwargs.get(name) is not None:
            raise ModelError(f"the model asks for {meaning} ({name}), which this engine does not compute yet")


@dataclass(slots=True)
class ProbeBackend:
    """Plain causal attention over one prompt, without a cache; remembers the KV heads that each layer hands over."""

    name: str = "probe"
    kv_heads: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    specs: list[AttentionSpec] = field(default_factory=list)

    def begin(self, batch: Batch) -> None: ...

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        self.specs.append(spec)
        self.kv_heads[spec.layer] = (k.shape[1], k.shape[2], v.shape[2])
        mask = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device).tril()
        q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
        return scores_times_values(q, k, v, mask, spec)[0].transpose(0, 1)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a model asks of its cache and of attention, a spec for each layer."""

    shape: KVShape
    specs: tuple[AttentionSpec, ...]


def probe(model: PreTrainedModel) -> Probe:
    """Run a short prompt and return what every layer keeps and asks for.

    Raises ModelError, naming the model's class and the reason, for a model whose layers do not all go through the
    registered attention (they would be silently wrong) or whose KV this cache cannot hold.
    """
    backend = ProbeBackend()
    set_backend(model, backend)
    name, num_layers = type(model).__name__, model.config.get_text_config().num_hidden_layers
    ids = torch.arange(4, device=model.device)[None]
    try:
        model(input_ids=ids, position_ids=ids, use_cache=False)
    except ModelError as error:
        raise ModelError(f"{name} cannot run here: {error}") from error
    except Exception as error:  # a border: any architecture's own code, called in a way that it may not know
        raise ModelError(f"{name} cannot run here: it does not take a packed prompt ({error})") from error
    if not backend.kv_heads:
        raise ModelError(f"{name} cannot run here: {NOT_ROUTED}")
    if len(backend.kv_heads) < num_layers:
        raise ModelError(
            f"{name} cannot run here: {num_layers - len(backend.kv_heads)} of its {num_layers} layers keep no KV that "
            "this cache could hold (recurrent or other layers)"
        )
    return Probe(_uniform_shape(name, list(backend.kv_heads.values()), model.dtype), tuple(backend.specs))


def _uniform_shape(name: str, kv_heads: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> KVShape:
    heads, key_dim, value_dim = kv_heads[0]
    if len(set(kv_heads)) > 1 or key_dim != value_dim:
        raise ModelError(f"{name} cannot run here: its layers keep KV of different shapes, {sorted(set(kv_heads))}")
    return KVShape(num_layers=len(kv_heads), num_kv_heads=heads, head_dim=key_dim, dtype=dtype)
