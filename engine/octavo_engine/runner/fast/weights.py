"""Finds out whether a model has Llama's structure, and merges its weights for the fast path."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from octavo_engine.runner.attention import AttentionSpec

LAYER_PARTS = {
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
}
OPTIONAL_PARTS = {
    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.bias",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
}


class NotFastError(Exception):
    """Why a model takes the general path; nothing is wrong with it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's views of FastWeights, made once: each costs microseconds, and a forward pass uses them all."""

    norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    head_norms: tuple[torch.Tensor, torch.Tensor] | None
    o: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(slots=True, kw_only=True)
class FastWeights:
    """All layers side by side, so that one kernel walks them; rows are output features.

    qkv: (layers, (heads + 2 * kv_heads) * head_dim, hidden). o: (layers, hidden, heads * head_dim). gate_up:
    (layers, 2 * intermediate, hidden), gate first. down: (layers, hidden, intermediate). norms: (2 * layers + 1,
    hidden), in the order of use: each layer's two, then the final one; those of the heads (layers, head_dim). cos
    and sin: (context, head_dim), float32.
    """

    embed: torch.Tensor
    head: torch.Tensor
    norms: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    eps: float
    scale: float
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: list[Layer] = field(init=False)

    def __post_init__(self) -> None:
        self.layers = [self._layer(number) for number in range(self.num_layers)]

    def _layer(self, number: int) -> Layer:
        q_norm, k_norm = self.q_norm, self.k_norm
        return Layer(
            norm=self.norms[2 * number],
            qkv=self.qkv[number],
            qkv_bias=None if self.qkv_bias is None else self.qkv_bias[number],
            head_norms=None if q_norm is None or k_norm is None else (q_norm[number], k_norm[number]),
            o=self.o[number],
            mlp_norm=self.norms[2 * number + 1],
            gate_up=self.gate_up[number],
            down=self.down[number],
        )

    @property
    def num_layers(self) -> int:
        return self.qkv.shape[0]

    @property
    def hidden(self) -> int:
        return self.qkv.shape[2]

    @property
    def intermediate(self) -> int:
        return self.down.shape[2]


def merge_weights(model: PreTrainedModel, specs: Sequence[AttentionSpec], max_model_len: int) -> FastWeights:
    """Merge the weights; the model's own modules become views of the merged tensors, so no memory is spent twice.

    Raises NotFastError, before anything is changed, for a model of another structure.
    """
    if any(spec.softcap or (spec.sliding_window or max_model_len) < max_model_len for spec in specs):
        raise NotFastError("its attention is windowed or capped")
    layers, parts = _layers(model)
    config = model.config.get_text_config()
    attention, mlp = layers[0].self_attn, layers[0].mlp
    if type(mlp.act_fn).__name__ not in ("SiLU", "SiLUActivation"):
        raise NotFastError(f"its activation is {type(mlp.act_fn).__name__}, not SiLU")
    cos, sin = _rotary(model, max_model_len, attention.head_dim)
    qkv_names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    return FastWeights(
        embed=_weight(model.get_input_embeddings()),
        head=_weight(model.get_output_embeddings()),  # type: ignore[no-untyped-call]
        norms=_norms(model, layers),
        qkv=_merge(layers, qkv_names, "weight"),
        qkv_bias=_merge(layers, qkv_names, "bias") if "self_attn.q_proj.bias" in parts else None,
        q_norm=_merge(layers, ["self_attn.q_norm"], "weight") if "self_attn.q_norm.weight" in parts else None,
        k_norm=_merge(layers, ["self_attn.k_norm"], "weight") if "self_attn.k_norm.weight" in parts else None,
        o=_merge(layers, ["self_attn.o_proj"], "weight"),
        gate_up=_merge(layers, ["mlp.gate_proj", "mlp.up_proj"], "weight"),
        down=_merge(layers, ["mlp.down_proj"], "weight"),
        cos=cos,
        sin=sin,
        eps=float(config.rms_norm_eps),
        scale=float(attention.scaling),
        num_heads=attention.q_proj.out_features // attention.head_dim,
        num_kv_heads=attention.k_proj.out_features // attention.head_dim,
        head_dim=attention.head_dim,
    )


def _layers(model: Any) -> tuple[list[Any], set[str]]:
    """The decoder layers and the names of their parameters, the same in each."""
    layers = getattr(getattr(model, "model", None), "layers", None)
    if layers is None or not hasattr(model.model, "norm") or not hasattr(model.model, "rotary_emb"):
        raise NotFastError("it has no model.layers, model.norm and model.rotary_emb")
    parts = [{name for name, _ in layer.named_parameters()} for layer in layers]
    unknown = parts[0] - LAYER_PARTS - OPTIONAL_PARTS
    if unknown or not parts[0] >= LAYER_PARTS or any(part != parts[0] for part in parts):
        raise NotFastError(f"its layers are built otherwise ({', '.join(sorted(unknown)[:3]) or 'parts are missing'})")
    if any(parameter.dtype != model.dtype for parameter in model.parameters()):
        raise NotFastError("its weights are of several types")
    return list(layers), parts[0]


def _rotary(model: Any, max_model_len: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position, as the model's own module computes them."""
    rope_type = getattr(model.model.rotary_emb, "rope_type", "default")
    if rope_type in ("dynamic", "longrope"):
        raise NotFastError(f"its rotary embedding ({rope_type}) depends on the length")
    positions = torch.arange(max_model_len, device=model.device)[None]
    probe = torch.zeros(1, 1, dtype=torch.float32, device=model.device)
    cos, sin = model.model.rotary_emb(probe, positions)
    if cos.shape[-1] != head_dim:
        raise NotFastError("it rotates a part of each head only")
    return cos[0].float().contiguous(), sin[0].float().contiguous()


def _weight(module: nn.Module) -> torch.Tensor:
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    return weight.data


def _norms(model: Any, layers: list[Any]) -> torch.Tensor:
    pairs = ((layer.input_layernorm, layer.post_attention_layernorm) for layer in layers)
    return torch.stack([*(norm.weight.data for pair in pairs for norm in pair), model.model.norm.weight.data])


def _merge(layers: list[Any], modules: list[str], parameter: str) -> torch.Tensor:
    """Stack one parameter of several modules over all layers; the modules keep views."""
    first = [getattr(layers[0].get_submodule(name), parameter) for name in modules]
    rows = [len(tensor) for tensor in first]
    merged = torch.empty(len(layers), sum(rows), *first[0].shape[1:], dtype=first[0].dtype, device=first[0].device)
    for layer, target in zip(layers, merged, strict=True):
        for name, part in zip(modules, target.split(rows), strict=True):
            owner: nn.Module = layer.get_submodule(name)
            part.copy_(getattr(owner, parameter).data)
            getattr(owner, parameter).data = part
    return merged
