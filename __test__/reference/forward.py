"""Runs a model's forward pass in float64 and writes its answers, or compares them with recorded ones.

    python3 forward.py MODEL.gguf --ids 1,2,3 --out DIR
    python3 forward.py MODEL.gguf --tokens DIR/tokens.npy --check DIR [--max-kl 1e-3]

A folder of answers holds `logits.npy` f32 [n_tokens, vocab_size], `router_logits.npy` f32 [n_tokens, n_layers, n_experts],
`topk.npy` i32 and `weights.npy` f32, both [n_tokens, n_layers, k] in the order of the router's choice. `--check` needs
`logits.npy` and compares the other files where they exist. Needs Python 3 and numpy.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from gguf_reader import GgufFile
from model import forward


def log_softmax(logits):
    """float64 logarithms of the probabilities, over the last axis."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def mean_kl(expected, found):
    """Mean over the rows of KL(expected || found) in nats; both are logits `[n_tokens, vocab_size]`."""
    p, q = log_softmax(expected), log_softmax(found)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def max_abs_diff(expected, found):
    """Largest difference of two arrays of the same shape."""
    if expected.shape != found.shape:
        raise ValueError(f"shapes differ: recorded {list(expected.shape)}, computed {list(found.shape)}")
    return float(np.abs(expected.astype(np.float64) - found).max())


def same_sets(expected, found):
    """Share of rows (last axis) that hold the same numbers in any order."""
    return float((np.sort(expected, axis=-1) == np.sort(found, axis=-1)).all(axis=-1).mean())


def save(answers, folder):
    """Writes the four files of `answers` into `folder`, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("logits", "router_logits", "weights"):
        np.save(folder / f"{name}.npy", getattr(answers, name).astype(np.float32))
    np.save(folder / "topk.npy", answers.topk)


def compare(answers, folder):
    """Compares `answers` with the files in `folder`: a dict from a measure's name to its value."""
    logits = np.load(folder / "logits.npy")
    found = {
        "max_abs_diff": max_abs_diff(logits, answers.logits),
        "mean_kl": mean_kl(logits, answers.logits),
        "same_argmax": float((logits.argmax(axis=-1) == answers.logits.argmax(axis=-1)).mean()),
    }
    if (folder / "router_logits.npy").exists():
        found["router_max_abs_diff"] = max_abs_diff(np.load(folder / "router_logits.npy"), answers.router_logits)
    if (folder / "topk.npy").exists():
        topk = np.load(folder / "topk.npy")
        max_abs_diff(topk, answers.topk)  # For its check of the shapes.
        found["same_topk"] = same_sets(topk, answers.topk)
        if (folder / "weights.npy").exists() and (topk == answers.topk).all():
            found["weights_max_abs_diff"] = max_abs_diff(np.load(folder / "weights.npy"), answers.weights)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    tokens = parser.add_mutually_exclusive_group(required=True)
    tokens.add_argument("--ids", help="token ids, separated by commas")
    tokens.add_argument("--tokens", type=Path, help=".npy file of token ids")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the answers here")
    parser.add_argument("--check", type=Path, metavar="DIR", help="compare with the answers here")
    parser.add_argument("--max-kl", type=float, metavar="X", help="with --check: fail where the mean KL is above X nats")
    args = parser.parse_args()
    if args.out is None and args.check is None:
        parser.error("nothing to do: pass --out or --check")

    ids = np.load(args.tokens).ravel() if args.tokens else [int(token) for token in args.ids.split(",")]
    answers = forward(GgufFile(args.model), ids)
    if args.out:
        save(answers, args.out)
    if args.check:
        found = compare(answers, args.check)
        print("  ".join(f"{name} {value:.3g}" for name, value in found.items()))
        # Written so that a KL that is not a number fails too.
        if args.max_kl is not None and not found["mean_kl"] <= args.max_kl:
            print(f"mean KL {found['mean_kl']:.3g} is above {args.max_kl:g}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
