//! Writes GGUF files for tests: valid ones, unusual ones, and wrong ones. Only needs the standard library.
#![allow(dead_code)] // Each test uses what it needs.

use std::path::Path;

/// Ids of the format's value types that tests write by hand.
pub const U32: u32 = 4;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;

/// Ids of tensor types.
pub const F32: u32 = 0;
pub const Q8_0: u32 = 8;

/// A file in the making. Fields that are `None` are worked out; setting them makes a wrong file.
#[derive(Clone)]
pub struct GgufWriter {
    pub magic: [u8; 4],
    pub version: u32,
    pub alignment: u64,
    pub n_keys: Option<u64>,
    pub n_tensors: Option<u64>,
    pub final_padding: bool,
    /// Key, type id, encoded value.
    pub entries: Vec<(Vec<u8>, u32, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
}

/// A tensor in the making; `dims` innermost first, as in the file.
#[derive(Clone)]
pub struct Tensor {
    pub name: Vec<u8>,
    pub dims: Vec<u64>,
    pub ty: u32,
    pub content: Vec<u8>,
    pub offset: Option<u64>,
}

impl GgufWriter {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            alignment: 32,
            n_keys: None,
            n_tensors: None,
            final_padding: true,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// A mixture-of-experts model in miniature: 2 layers, 4 experts of width 32, 2 used, embedding width 64.
    pub fn tiny_moe() -> Self {
        let mut writer = Self::new()
            .string("general.architecture", "qwen3moe")
            .string("general.name", "tiny")
            .u32("qwen3moe.block_count", 2)
            .u32("qwen3moe.embedding_length", 64)
            .u32("qwen3moe.attention.head_count", 4)
            .u32("qwen3moe.attention.head_count_kv", 2)
            .u32("qwen3moe.expert_count", 4)
            .u32("qwen3moe.expert_used_count", 2)
            .u32("qwen3moe.context_length", 128)
            .strings("tokenizer.ggml.tokens", &["a", "b", "ab", "<|end|>"])
            .tensor("token_embd.weight", &[64, 4], F32);
        for layer in 0..2 {
            writer = writer
                .tensor(&format!("blk.{layer}.attn_norm.weight"), &[64], F32)
                .tensor(&format!("blk.{layer}.attn_q.weight"), &[64, 64], Q8_0)
                .tensor(&format!("blk.{layer}.ffn_gate_inp.weight"), &[64, 4], F32)
                .tensor(&format!("blk.{layer}.ffn_gate_exps.weight"), &[64, 32, 4], Q8_0)
                .tensor(&format!("blk.{layer}.ffn_up_exps.weight"), &[64, 32, 4], Q8_0)
                .tensor(&format!("blk.{layer}.ffn_down_exps.weight"), &[32, 64, 4], F32);
        }
        writer
    }

    /// Adds a key of any type, the value already encoded.
    pub fn entry(mut self, key: impl AsRef<[u8]>, ty: u32, value: impl AsRef<[u8]>) -> Self {
        self.entries.push((key.as_ref().to_vec(), ty, value.as_ref().to_vec()));
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, U32, value.to_le_bytes())
    }

    pub fn string(self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.entry(key, STRING, string(value))
    }

    pub fn strings(self, key: &str, values: &[&str]) -> Self {
        let items: Vec<_> = values.iter().map(string).collect();
        self.entry(key, ARRAY, array(STRING, &items))
    }

    /// Adds a tensor of `F32` or `Q8_0`, filled with bytes that count up.
    pub fn tensor(mut self, name: &str, dims: &[u64], ty: u32) -> Self {
        let n: u64 = dims.iter().product();
        let bytes = match ty {
            F32 => n * 4,
            Q8_0 => n / 32 * 34,
            _ => panic!("the writer does not know the size of type {ty}"),
        };
        let content = (0..bytes).map(|i| i as u8).collect();
        self.tensors.push(Tensor { name: name.into(), dims: dims.into(), ty, content, offset: None });
        self
    }

    /// Changes the tensor called `name`.
    pub fn edit(mut self, name: &str, change: impl FnOnce(&mut Tensor)) -> Self {
        change(self.tensors.iter_mut().find(|tensor| tensor.name == name.as_bytes()).expect("a tensor of this name"));
        self
    }

    /// Everything before the tensor data, without padding.
    pub fn header(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_keys.unwrap_or(self.entries.len() as u64).to_le_bytes());
        for (key, ty, value) in &self.entries {
            out.extend(string(key));
            out.extend(ty.to_le_bytes());
            out.extend(value);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            out.extend(string(&tensor.name));
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.ty.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next += (tensor.content.len() as u64).next_multiple_of(self.alignment);
        }
        out
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let pad = |out: &mut Vec<u8>| out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        let mut out = self.header();
        pad(&mut out);
        for (i, tensor) in self.tensors.iter().enumerate() {
            out.extend(&tensor.content);
            if self.final_padding || i + 1 < self.tensors.len() {
                pad(&mut out);
            }
        }
        out
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.bytes()).expect("the test's folder is writable");
    }

    /// Cuts the file into shards with the given numbers of tensors, keyed as published ones are.
    pub fn split(&self, counts: &[usize]) -> Vec<Self> {
        let mut tensors = self.tensors.iter().cloned();
        let shard = |(i, n): (usize, &usize)| {
            let mut shard = Self { tensors: tensors.by_ref().take(*n).collect(), ..self.clone() };
            if i > 0 {
                shard.entries.clear();
            }
            // As the tool that splits files writes them: 16 bits, and 32 with a sign.
            shard
                .entry("split.no", 2, (i as u16).to_le_bytes())
                .entry("split.count", 2, (counts.len() as u16).to_le_bytes())
                .entry("split.tensors.count", 5, (self.tensors.len() as i32).to_le_bytes())
        };
        counts.iter().enumerate().map(shard).collect()
    }
}

/// A string as in the file: length, then bytes.
pub fn string(value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [&(value.len() as u64).to_le_bytes()[..], value].concat()
}

/// An array as in the file: element type, count, elements.
pub fn array(ty: u32, items: &[Vec<u8>]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &(items.len() as u64).to_le_bytes(), &items.concat()].concat()
}
