"""Tiny random models of every architecture that we claim, and our logits of them beside transformers' own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
import transformers
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.block_manager import BlockManager
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.params import SamplingParams
from octavo_engine.runner import routing
from octavo_engine.runner.attention import SDPABackend
from octavo_engine.runner.kv_cache import KVCache
from octavo_engine.runner.model_runner import forward
from octavo_engine.scheduler import Scheduler

TINY = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ROPE = {"rope_theta": 10_000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
WINDOW = 24
ARCHITECTURES: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama-biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama-rope-llama3": ("LlamaConfig", {"rope_parameters": ROPE | LLAMA3}),
    "llama-rope-yarn": ("LlamaConfig", {"rope_parameters": ROPE | YARN}),
    "llama-rope-linear": ("LlamaConfig", {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 2.0}}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
    ),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 16, "sliding_window": WINDOW, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 24},
    ),
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": WINDOW}),
    "phi3": ("Phi3Config", {}),
    "phi3-partial": ("Phi3Config", {"rope_parameters": ROPE | {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    "gpt-neox": ("GPTNeoXConfig", {"rotary_pct": 0.25}),
    "olmo2": ("Olmo2Config", {}),
    "granite": ("GraniteConfig", {"attention_multiplier": 0.07, "logits_scaling": 3.0, "residual_multiplier": 0.5}),
    "smollm3": ("SmolLM3Config", {"no_rope_layer_interval": 2}),
    "cohere": ("CohereConfig", {"logit_scale": 0.5}),
    "stablelm": ("StableLmConfig", {"use_qkv_bias": True}),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512}),
}
REFUSED: dict[str, tuple[str, dict[str, object]]] = {
    "bloom": ("BloomConfig", {"n_layer": 2, "n_head": 4}),
    "falcon": ("FalconConfig", {}),
    "mpt": ("MptConfig", {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 512}),
    "gpt-oss": ("GptOssConfig", {"head_dim": 16, "num_local_experts": 4, "sliding_window": WINDOW}),
    "deepseek-v3": (
        "DeepseekV3Config",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 12,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
        },
    ),
    "mamba": ("MambaConfig", {"state_size": 8}),
    "qwen3-next": (
        "Qwen3NextConfig",
        {
            "head_dim": 16,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "num_hidden_layers": 4,
        },
    ),
}


CPU = torch.device("cpu")


def build(kind: str, settings: dict[str, object], attention: str, device: torch.device = CPU) -> PreTrainedModel:
    """A random float32 model of a config class, the same weights at every call and on every device."""
    config: PretrainedConfig = getattr(transformers, kind)(**TINY | settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, attn_implementation=attention, dtype=torch.float32
    )
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)  # zeros would hide a bias that is left out
    assert isinstance(model, PreTrainedModel)
    model.train(False)
    torch.nn.Module.to(model, device)
    return model


@dataclass
class LogitsRunner:
    """Runs batches through our path, keeps the logits of each sampled position and samples greedily."""

    model: PreTrainedModel
    cache: KVCache
    backend: SDPABackend
    logits: dict[str, list[torch.Tensor]] = field(default_factory=dict)

    def check(self, params: SamplingParams) -> None: ...

    def launch(self, batch: Batch) -> PendingStep:
        return PendingStep(partial(self._compute, batch))

    @torch.inference_mode()
    def _compute(self, batch: Batch) -> StepOutput:
        logits = forward(self.model, self.cache, self.backend, batch)
        rows = iter(logits)
        for sequence, samples in zip(batch.sequences, batch.samples, strict=True):
            if samples:
                self.logits.setdefault(sequence.request_id, []).append(next(rows))
        return StepOutput(logits.argmax(-1).tolist())


def make_engine(model: PreTrainedModel, block_size: int, budget: int) -> tuple[Engine, LogitsRunner]:
    shape = routing.probe(model).shape
    cache = KVCache(shape, 64, block_size, model.device)
    cache.data.fill_(torch.nan)  # a slot that was never written must never be read
    backend = SDPABackend(cache)
    routing.set_backend(model, backend)
    runner = LogitsRunner(model, cache, backend)
    config = EngineConfig(block_size=block_size, max_num_seqs=8, max_num_batched_tokens=budget)
    scheduler = Scheduler(BlockManager(64, block_size), config, max_model_len=512)
    return Engine(scheduler, runner, lambda ids: "x" * len(ids), []), runner


def drain(engine: Engine, prompts: dict[str, list[int]], num_new: int) -> None:
    for request_id, prompt in prompts.items():
        engine.add(request_id, prompt, SamplingParams(temperature=0.0, max_tokens=num_new))
    while engine.has_work:
        engine.step()
    engine.check_integrity()


@torch.inference_mode()
def relative_errors(reference: PreTrainedModel, prompt: list[int], ours: list[torch.Tensor]) -> Iterator[float]:
    """The error of each step's logits, the reference fed with our own greedy ids."""
    ids = list(prompt)
    for logits in ours:
        theirs = reference(torch.tensor([ids], device=reference.device), use_cache=False).logits[0, -1]
        yield float((logits - theirs).norm() / theirs.norm())
        ids.append(int(logits.argmax()))


def largest_error(name: str, device: torch.device) -> float:
    """The largest relative error of our logits on the general path against transformers' own attention, in float32.

    In prefill, chunked prefill, ragged decode and after a prefix hit; over a window's edge where there is one.
    """
    routing.register()
    kind, settings = ARCHITECTURES[name]
    reference, model = build(kind, settings, "eager", device), build(kind, settings, routing.ATTENTION_NAME, device)
    rng = torch.Generator().manual_seed(1)
    long, short, other = (torch.randint(3, 128, (n,), generator=rng).tolist() for n in (61, 7, 33))
    engine, runner = make_engine(model, block_size=8, budget=24)
    drain(engine, {"long": long, "short": short}, num_new=6)
    drain(engine, {"again": long + other, "half": long[:20] + other}, num_new=4)
    prompts = {"long": long, "short": short, "again": long + other, "half": long[:20] + other}
    return max(max(relative_errors(reference, prompt, runner.logits[name])) for name, prompt in prompts.items())
