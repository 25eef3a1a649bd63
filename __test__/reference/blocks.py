"""Turns stored tensor bytes into float64 numbers, for every block format that the engine reads.

A quantized row is a sequence of blocks. Each decoder takes its blocks as `uint8 [n_blocks, block bytes]` and gives
`float64 [n_blocks, values per block]`. In the docstrings a block is drawn as its fields in file order with their sizes
in bytes, `d` being the block's float16 scale and `q` the small integers. "Low nibbles first" means that byte `l` of 16 (or 32)
holds value `l` in its low four bits and value `l + 16` (or `l + 32`) in its high ones.

The formats are those of ggml. Nothing is rounded: a float64 holds each product exactly or to 2^-53.
"""

from dataclasses import dataclass
from typing import Callable

import numpy as np

from iq3s_grid import IQ3S_GRID

# Values of the 16 codes of IQ4_NL and IQ4_XS: denser around zero, where most weights are.
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
# Values of the 16 codes of a float with 2 exponent bits and 1 mantissa bit (OCP Microscaling Formats 1.0, E2M1).
E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def _half(two_bytes):
    """float16 stored in `[n, 2]` bytes, as float64 `[n, 1]`."""
    return np.ascontiguousarray(two_bytes).view("<f2").astype(np.float64)


def _fields(raw, *sizes):
    """Cuts `[n, sum(sizes)]` into one array per field."""
    return np.split(raw, np.cumsum(sizes)[:-1], axis=1)


def _nibbles(qs, group):
    """`[n, b]` bytes to `[n, 2 b]` numbers 0..15: of each `group` bytes first the low nibbles, then the high ones."""
    parts = qs.reshape(len(qs), -1, 1, group)
    return np.concatenate([parts & 15, parts >> 4], axis=2).reshape(len(qs), -1)


def _planes(bytes_, bits, group):
    """Small numbers that share a byte: `[n, b]` to `[n, b * 8 / bits]`.

    Of each `group` bytes first the lowest `bits` bits of all of them, then the next, and so on.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    parts = bytes_.reshape(len(bytes_), -1, 1, group)
    return ((parts >> shifts) & ((1 << bits) - 1)).reshape(len(bytes_), -1)


def _scaled(scales, q):
    """Multiplies `q` `[n, values]` by `scales` `[n, groups]`, each scale covering `values / groups` neighbours."""
    return np.repeat(scales, q.shape[1] // scales.shape[1], axis=1) * q


def decode_f32(raw):
    return raw.view("<f4").astype(np.float64)


def decode_f16(raw):
    return raw.view("<f2").astype(np.float64)


def decode_bf16(raw):
    """The upper half of a float32."""
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def decode_q8_0(raw):
    """`d 2 | q 32`: value = d · q, q signed."""
    d, q = _fields(raw, 2, 32)
    return _half(d) * q.view(np.int8)


def decode_q4_0(raw):
    """`d 2 | q 16`, low nibbles first: value = d · (q - 8)."""
    d, qs = _fields(raw, 2, 16)
    return _half(d) * (_nibbles(qs, 16) - 8.0)


def decode_q4_1(raw):
    """`d 2 | m 2 | q 16`, low nibbles first: value = d · q + m."""
    d, m, qs = _fields(raw, 2, 2, 16)
    return _half(d) * _nibbles(qs, 16) + _half(m)


def _five_bits(qh, qs):
    """32 numbers 0..31: low four bits in `qs`, the fifth of value `i` in bit `i` of the 32-bit number `qh`."""
    fifth = np.unpackbits(qh, axis=1, bitorder="little")
    return _nibbles(qs, 16) + 16.0 * fifth


def decode_q5_0(raw):
    """`d 2 | fifth bits 4 | q 16`: value = d · (q - 16)."""
    d, qh, qs = _fields(raw, 2, 4, 16)
    return _half(d) * (_five_bits(qh, qs) - 16.0)


def decode_q5_1(raw):
    """`d 2 | m 2 | fifth bits 4 | q 16`: value = d · q + m."""
    d, m, qh, qs = _fields(raw, 2, 2, 4, 16)
    return _half(d) * _five_bits(qh, qs) + _half(m)


def decode_q2_k(raw):
    """`scales 16 | q 64 | d 2 | dmin 2`: value = d · scale · q - dmin · min.

    Byte `j` of the scales serves values 16 j to 16 j + 15: the scale in its low nibble, the min in its high one.
    """
    scales, qs, d, dmin = _fields(raw, 16, 64, 2, 2)
    q = _planes(qs, 2, 32)
    return _scaled(_half(d) * (scales & 15), q) - _scaled(_half(dmin) * (scales >> 4), np.ones_like(q))


def decode_q3_k(raw):
    """`third bits 32 | q 64 | scales 12 | d 2`: value = d · (scale - 32) · (q - 4), q of three bits.

    Sixteen scales of 6 bits: the low four in the nibbles of the first 8 bytes (low nibbles first), the upper two as four
    planes in the last 4 bytes.
    """
    third, qs, packed, d = _fields(raw, 32, 64, 12, 2)
    q = _planes(qs, 2, 32) + 4.0 * _planes(third, 1, 32)
    scales = _nibbles(packed[:, :8], 8) + 16.0 * _planes(packed[:, 8:], 2, 4)
    return _scaled(_half(d) * (scales - 32.0), q - 4.0)


def _six_bit_pairs(packed):
    """The 8 scales and 8 mins, 0..63, that Q4_K and Q5_K pack into 12 bytes: two float64 `[n, 8]`.

    Scales 0-3 and mins 0-3 are the low six bits of bytes 0-3 and 4-7. The nibbles of bytes 8-11 are the low parts of scales
    and mins 4-7, whose upper two bits are the bits left over in bytes 0-3 and 4-7.
    """
    a, b, c = _fields(packed, 4, 4, 4)
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6 << 4)], axis=1)
    mins = np.concatenate([b & 63, (c >> 4) | (b >> 6 << 4)], axis=1)
    return scales.astype(np.float64), mins.astype(np.float64)


def decode_q4_k(raw):
    """`d 2 | dmin 2 | scales 12 | q 128`: value = d · scale · q - dmin · min, a pair per 32 values."""
    d, dmin, packed, qs = _fields(raw, 2, 2, 12, 128)
    scales, mins = _six_bit_pairs(packed)
    q = _nibbles(qs, 32)
    return _scaled(_half(d) * scales, q) - _scaled(_half(dmin) * mins, np.ones_like(q))


def decode_q5_k(raw):
    """`d 2 | dmin 2 | scales 12 | fifth bits 32 | q 128`: as Q4_K, with bit `j` of byte `l` for value 32 j + l."""
    d, dmin, packed, fifth, qs = _fields(raw, 2, 2, 12, 32, 128)
    scales, mins = _six_bit_pairs(packed)
    q = _nibbles(qs, 32) + 16.0 * _planes(fifth, 1, 32)
    return _scaled(_half(d) * scales, q) - _scaled(_half(dmin) * mins, np.ones_like(q))


def decode_q6_k(raw):
    """`low bits 128 | high bits 64 | scales 16 | d 2`: value = d · scale · (q - 32), a signed scale per 16 values.

    In each half of the block, 64 bytes of low nibbles go with 32 bytes of four 2-bit planes.
    """
    low, high, scales, d = _fields(raw, 128, 64, 16, 2)
    q = _nibbles(low, 64) + 16.0 * _planes(high, 2, 32)
    return _scaled(_half(d) * scales.view(np.int8), q - 32.0)


def decode_iq4_nl(raw):
    """`d 2 | codes 16`, low nibbles first: value = d · table[code]."""
    d, qs = _fields(raw, 2, 16)
    return _half(d) * IQ4_VALUES[_nibbles(qs, 16)]


def decode_iq4_xs(raw):
    """`d 2 | scales' high bits 2 | scales' low bits 4 | codes 128`: value = d · (scale - 32) · table[code].

    A scale of 6 bits per 32 values: low nibbles two to a byte, the upper two bits of scale `j` at bit 2 j.
    """
    d, high, low, qs = _fields(raw, 2, 2, 4, 128)
    scales = _nibbles(low, 1) + 16.0 * _planes(high, 2, 1)
    return _scaled(_half(d) * (scales - 32.0), IQ4_VALUES[_nibbles(qs, 16)])


def decode_mxfp4(raw):
    """`exponent 1 | codes 16`, low nibbles first: value = 2^(exponent - 127) · E2M1 value of the code."""
    exponent, qs = _fields(raw, 1, 16)
    return np.exp2(exponent.astype(np.float64) - 127.0) * E2M1_VALUES[_nibbles(qs, 16)]


def decode_iq3_s(raw):
    """`d 2 | index 64 | ninth bits 8 | signs 32 | scales 4`: value = ± d · (1 + 2 scale) · grid value.

    Index `g` picks the four magnitudes 4 g to 4 g + 3 from a grid of 512; its ninth bit is bit `g % 8` of byte `g / 8`.
    A set bit in `signs` is minus. A scale of 4 bits per 32 values, two to a byte.
    """
    d, qs, ninth, signs, scales = _fields(raw, 2, 64, 8, 32, 4)
    index = qs + 256 * np.unpackbits(ninth, axis=1, bitorder="little").astype(np.int64)
    magnitude = IQ3S_GRID[index].reshape(len(raw), 256)
    sign = 1.0 - 2.0 * np.unpackbits(signs, axis=1, bitorder="little")
    return _scaled(_half(d) * (1.0 + 2.0 * _nibbles(scales, 1)), sign * magnitude)


@dataclass(frozen=True)
class Block:
    """One format: `values` numbers in `size` bytes."""

    name: str
    values: int
    size: int
    decode: Callable


# By the type's number in a GGUF file.
BLOCKS = {
    0: Block("F32", 1, 4, decode_f32),
    1: Block("F16", 1, 2, decode_f16),
    2: Block("Q4_0", 32, 18, decode_q4_0),
    3: Block("Q4_1", 32, 20, decode_q4_1),
    6: Block("Q5_0", 32, 22, decode_q5_0),
    7: Block("Q5_1", 32, 24, decode_q5_1),
    8: Block("Q8_0", 32, 34, decode_q8_0),
    10: Block("Q2_K", 256, 84, decode_q2_k),
    11: Block("Q3_K", 256, 110, decode_q3_k),
    12: Block("Q4_K", 256, 144, decode_q4_k),
    13: Block("Q5_K", 256, 176, decode_q5_k),
    14: Block("Q6_K", 256, 210, decode_q6_k),
    20: Block("IQ4_NL", 32, 18, decode_iq4_nl),
    21: Block("IQ3_S", 256, 110, decode_iq3_s),
    23: Block("IQ4_XS", 256, 136, decode_iq4_xs),
    30: Block("BF16", 1, 2, decode_bf16),
    39: Block("MXFP4", 32, 17, decode_mxfp4),
}


def stored_bytes(type_id, n_values):
    """Bytes that `n_values` numbers take in the format of `type_id`."""
    block = BLOCKS[type_id]
    return n_values // block.values * block.size


def decode(type_id, raw):
    """Decodes whole blocks: bytes to float64 `[n_values]`."""
    block = BLOCKS[type_id]
    return block.decode(np.frombuffer(raw, np.uint8).reshape(-1, block.size)).reshape(-1)
