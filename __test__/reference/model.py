"""The forward pass of olmoe and qwen3moe in float64, written to be read beside the formulas.

All positions of a sequence are computed at once, with no cache. Matrices are `[rows, cols]` (outputs, inputs), so a
product is `x @ matrix.T`. `E` is the embedding width, `D` the width of a head.

Sources: Muennighoff et al. 2024, OLMoE, arXiv 2409.02060; Yang et al. 2025, Qwen3, arXiv 2505.09388.
"""

from dataclasses import dataclass

import numpy as np

import rope

ARCHITECTURES = ("olmoe", "qwen3moe")


@dataclass(frozen=True)
class Answers:
    """What a run gives. `k` experts are listed in the order of the router's choice."""

    logits: np.ndarray  # float64 [n_tokens, vocab_size]
    router_logits: np.ndarray  # float64 [n_tokens, n_layers, n_experts]
    topk: np.ndarray  # int32 [n_tokens, n_layers, k]
    weights: np.ndarray  # float64 [n_tokens, n_layers, k]


class Config:
    """Hyper-parameters, from the `<arch>.*` keys of a file."""

    def __init__(self, file):
        metadata = file.metadata
        arch = metadata.get("general.architecture")
        if arch not in ARCHITECTURES:
            raise ValueError(f"{file.path}: architecture `{arch}`; supported are {', '.join(ARCHITECTURES)}")

        def key(name, *default):
            full = f"{arch}.{name}"
            if full in metadata:
                return metadata[full]
            if not default:
                raise KeyError(f"{file.path}: the key `{full}` is missing")
            return default[0]

        self.arch = arch
        self.n_layers = key("block_count")
        self.embed_dim = key("embedding_length")
        self.n_heads = key("attention.head_count")
        self.n_kv_heads = key("attention.head_count_kv", self.n_heads)
        self.head_dim = key("attention.key_length", self.embed_dim // self.n_heads)
        self.n_ctx = key("context_length")
        self.n_experts = key("expert_count")
        self.n_experts_used = key("expert_used_count")
        self.eps = key("attention.layer_norm_rms_epsilon", 1e-5)
        # A file may state these two; otherwise they are what each architecture was trained with.
        self.normalize_weights = key("expert_weights_norm", arch == "qwen3moe")
        self.weights_scale = key("expert_weights_scale", 0.0) or 1.0  # 0 means "not scaled", as llama.cpp takes it.
        rotated = key("rope.dimension_count", self.head_dim)
        if rotated != self.head_dim:
            raise ValueError(f"{file.path}: {rotated} of {self.head_dim} values of a head are rotated; expected all")
        self.angles, self.rope_magnitude = rope.pair_angles(metadata, arch, self.head_dim)


def rms_norm(x, weight, eps):
    """`x` scaled to a root mean square of 1 over its last axis, times `weight`. Zhang and Sennrich, arXiv 1910.07467."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(x):
    """Over the last axis; `-inf` gives 0."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x):
    """`x · sigmoid(x)`; `exp` is taken of negative numbers only, so that it cannot overflow."""
    e = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1.0, e) / (1.0 + e)


def attention(file, config, layer, x):
    """The attention block's addition to the residual stream: `x` and the result are `[n_tokens, E]`."""
    c, n_tokens = config, len(x)

    def weight(name):
        return file.tensor(f"blk.{layer}.{name}.weight")

    h = rms_norm(x, weight("attn_norm"), c.eps)
    q, k, v = (h @ weight(name).T for name in ("attn_q", "attn_k", "attn_v"))
    if c.arch == "olmoe":  # One norm over the whole projected vector, before it is cut into heads.
        q, k = rms_norm(q, weight("attn_q_norm"), c.eps), rms_norm(k, weight("attn_k_norm"), c.eps)
    q = q.reshape(n_tokens, c.n_heads, c.head_dim)
    k = k.reshape(n_tokens, c.n_kv_heads, c.head_dim)
    v = v.reshape(n_tokens, c.n_kv_heads, -1)
    if c.arch == "qwen3moe":  # One norm per head, its weight shared by all heads.
        q, k = rms_norm(q, weight("attn_q_norm"), c.eps), rms_norm(k, weight("attn_k_norm"), c.eps)
    q = rope.rotate(q, c.angles, c.rope_magnitude)
    k = rope.rotate(k, c.angles, c.rope_magnitude)

    # Neighbouring query heads share a key/value head.
    group = c.n_heads // c.n_kv_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c.head_dim)
    future = np.triu(np.ones((n_tokens, n_tokens), bool), 1)
    scores = np.where(future, -np.inf, scores)
    mixed = np.einsum("hqk,khd->qhd", softmax(scores), v)
    return mixed.reshape(n_tokens, -1) @ weight("attn_output").T


def route(config, router_logits):
    """The chosen experts and their weights, `[n_tokens, k]` each, from `router_logits` `[n_tokens, n_experts]`."""
    probs = softmax(router_logits)
    # A stable sort of the negated values: largest first, and ties stay in the order of their ids.
    topk = np.argsort(-probs, axis=-1, kind="stable")[:, : config.n_experts_used]
    weights = np.take_along_axis(probs, topk, axis=-1)
    if config.normalize_weights:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return topk.astype(np.int32), weights * config.weights_scale


def expert_matrix(file, layer, kind, expert):
    """`gate`, `up` or `down` of one expert, `[rows, cols]`; from the fused tensor or, in older files, its own."""
    fused = f"blk.{layer}.ffn_{kind}_exps.weight"
    if fused in file.tensors:
        return file.expert(fused, expert)
    return file.tensor(f"blk.{layer}.ffn_{kind}.{expert}.weight")


def experts(file, layer, h, topk, weights):
    """The weighted sum of the chosen experts' outputs: `h` and the result are `[n_tokens, E]`."""
    out = np.zeros_like(h)
    for expert in np.unique(topk):
        tokens, slots = np.nonzero(topk == expert)
        gate, up, down = (expert_matrix(file, layer, kind, expert) for kind in ("gate", "up", "down"))
        x = h[tokens]
        # A token chooses an expert at most once, so no index repeats in this addition.
        out[tokens] += weights[tokens, slots, None] * ((silu(x @ gate.T) * (x @ up.T)) @ down.T)
    return out


def forward(file, ids):
    """Runs the token ids `[n_tokens]`, at positions 0, 1, 2, ..., through the model in `file` (a `GgufFile`)."""
    c = Config(file)
    embedding = file.tensor("token_embd.weight")
    ids = np.asarray(ids)
    if ids.size == 0 or ids.size > c.n_ctx:
        raise ValueError(f"{ids.size} token ids; the model takes 1 to {c.n_ctx}")
    if ids.min() < 0 or ids.max() >= len(embedding):
        raise ValueError(f"token ids range from {ids.min()} to {ids.max()}; the vocabulary has 0 to {len(embedding) - 1}")

    x = embedding[ids]
    routed = []
    for layer in range(c.n_layers):
        x = x + attention(file, c, layer, x)
        h = rms_norm(x, file.tensor(f"blk.{layer}.ffn_norm.weight"), c.eps)
        router_logits = h @ file.tensor(f"blk.{layer}.ffn_gate_inp.weight").T
        topk, weights = route(c, router_logits)
        x = x + experts(file, layer, h, topk, weights)
        routed.append((router_logits, topk, weights))

    x = rms_norm(x, file.tensor("output_norm.weight"), c.eps)
    output = file.tensor("output.weight") if "output.weight" in file.tensors else embedding
    return Answers(x @ output.T, *(np.stack(part, axis=1) for part in zip(*routed)))
