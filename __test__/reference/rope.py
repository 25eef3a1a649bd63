"""Rotary embedding with NeoX pairing, and the three ways a file may stretch it over longer contexts.

Sources: Su et al. 2021, RoFormer, arXiv 2104.09864; Peng et al. 2023, YaRN, arXiv 2309.00071.
"""

import math

import numpy as np


def pair_angles(metadata, arch, head_dim):
    """Radians per position for each pair, and the factor on the rotated vectors: float64 `[head_dim / 2]`, float."""
    key = f"{arch}.rope.scaling."
    base = metadata.get(f"{arch}.rope.freq_base", 10000.0)
    pair = np.arange(head_dim // 2, dtype=np.float64)
    plain = base ** (-2.0 * pair / head_dim)
    magnitude = metadata.get(key + "attn_factor", 1.0)

    # Older files state the factor of linear scaling under another key; 0 means that there is none.
    factor = metadata.get(key + "factor", metadata.get(f"{arch}.rope.scale_linear", 1.0)) or 1.0
    kind = metadata.get(key + "type", "linear")
    if kind == "none" or factor == 1.0:
        return plain, magnitude
    stretched = plain / factor
    if kind == "linear":
        return stretched, magnitude
    if kind != "yarn":
        raise ValueError(f"rope scaling `{kind}` is not known here; supported are none, linear and yarn")

    trained = metadata.get(key + "original_context_length", metadata[f"{arch}.context_length"])

    def pair_with_turns(turns):
        """The (fractional) pair that makes `turns` full turns over the trained context."""
        return head_dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    # Pairs up to `first` turn often enough to be left alone; from `last` on they are stretched; in between a ramp.
    first = max(math.floor(pair_with_turns(metadata.get(key + "yarn_beta_fast", 32.0))), 0)
    last = min(math.ceil(pair_with_turns(metadata.get(key + "yarn_beta_slow", 1.0))), head_dim - 1)
    # 0.001 keeps the ramp finite where both ends meet, as llama.cpp has it.
    ramp = np.clip((pair - first) / max(last - first, 0.001), 0.0, 1.0)
    return plain * (1.0 - ramp) + stretched * ramp, magnitude * (1.0 + 0.1 * math.log(factor))


def rotate(x, angles, magnitude):
    """`x` `[n_tokens, n_heads, head_dim]` with each head turned to its token's position (0, 1, 2, ...).

    Element `i` pairs with `i + head_dim / 2`.
    """
    turn = np.arange(len(x))[:, None, None] * angles
    cos, sin = magnitude * np.cos(turn), magnitude * np.sin(turn)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
