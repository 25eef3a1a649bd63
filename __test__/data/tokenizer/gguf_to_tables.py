"""Turns the tokenizer tables of a GGUF file into a small JSON file.

  python gguf_to_tables.py vocab-qwen3.gguf vocab-qwen3.json.gz

Needs only Python's standard library. Writes one object: model, pre, tokens, types, merges and the special ids, as
they stand under `tokenizer.ggml.*`.
"""
import gzip
import json
import struct
import sys

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, file):
        self.file = file

    def scalar(self, code):
        return struct.unpack("<" + code, self.file.read(struct.calcsize("<" + code)))[0]

    def string(self):
        return self.file.read(self.scalar("Q")).decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element = self.scalar("I")
            return [self.value(element) for _ in range(self.scalar("Q"))]
        return self.scalar(SCALARS[kind])


def metadata(path):
    with open(path, "rb") as file:
        reader = Reader(file)
        assert file.read(4) == b"GGUF"
        reader.scalar("I")
        reader.scalar("Q")
        n_pairs = reader.scalar("Q")
        return {reader.string(): reader.value(reader.scalar("I")) for _ in range(n_pairs)}


def main():
    source, target = sys.argv[1:]
    pairs = metadata(source)
    key = lambda name: pairs.get("tokenizer.ggml." + name)
    tables = {
        "model": key("model"),
        "pre": key("pre"),
        "tokens": key("tokens"),
        "types": key("token_type"),
        "merges": key("merges"),
        "bos": key("bos_token_id"),
        "eos": key("eos_token_id"),
        "pad": key("padding_token_id"),
    }
    text = json.dumps(tables, ensure_ascii=False, separators=(",", ":")).encode()
    # No time and no name in the header: the same input gives the same file.
    with open(target, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text)


if __name__ == "__main__":
    main()
