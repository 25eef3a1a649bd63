//! What a file holds, in numbers: the facts that `inspect` prints.

use crate::quant::TensorType;

use super::{Array, Gguf, Layout, Projection, Value};

/// The facts about a model. Describes any file: what it does not state is `None` or 0, never an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// `general.architecture`.
    pub architecture: Option<String>,
    /// `general.name`.
    pub name: Option<String>,
    /// Stated number of layers, or that of the layers with tensors; 0 where there are none.
    pub n_layers: usize,
    /// Experts of a layer; 0 in a dense model.
    pub n_experts: usize,
    /// Experts that a token uses in a layer; 0 where it is not stated.
    pub n_experts_used: usize,
    /// Query heads; the most of any layer, where they differ.
    pub n_heads: Option<usize>,
    /// Key and value heads; the most of any layer, where they differ. As many as query heads where not stated.
    pub n_kv_heads: Option<usize>,
    /// Width of a head: `attention.key_length`, or the embedding width over the number of heads.
    pub head_dim: Option<usize>,
    /// Embedding width.
    pub embed_dim: Option<usize>,
    /// Width of an expert; `None` in a dense model.
    pub expert_dim: Option<usize>,
    /// Tokens in the vocabulary.
    pub vocab_size: Option<usize>,
    /// Longest context that the model was made for, in tokens.
    pub context_length: Option<usize>,
    /// Bytes of all files together.
    pub file_bytes: u64,
    /// Number of files.
    pub n_shards: usize,
    /// Number of tensors.
    pub n_tensors: usize,
    /// Number of weights.
    pub n_weights: u64,
    /// Bytes of all tensors but routed experts.
    pub dense_bytes: u64,
    /// Bytes of all routed experts.
    pub expert_bytes: u64,
    /// Bytes of one whole expert; the average, rounded down, where layers mix tensor types.
    pub bytes_per_expert: u64,
    /// Bytes of the largest expert.
    pub largest_expert_bytes: u64,
    /// Dense bytes of the layer that has most.
    pub largest_dense_layer_bytes: u64,
    /// Bytes of the experts that one token uses, all layers together.
    pub expert_bytes_per_token: u64,
    /// Tensor types in use, most bytes first.
    pub tensor_types: Vec<TypeUse>,
}

/// How much of a file has one tensor type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeUse {
    /// The type.
    pub ty: TensorType,
    /// Tensors of it.
    pub n_tensors: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Summary {
    /// Gathers the facts about `gguf`, whose layout is `layout`.
    pub fn of(gguf: &Gguf, layout: &Layout) -> Self {
        let architecture = text(gguf, "general.architecture");
        let stated = |key: &str| count(gguf, &format!("{}.{key}", architecture.as_deref()?));

        let embed_dim = stated("embedding_length");
        let n_heads = stated("attention.head_count");
        let head_dim = stated("attention.key_length").or_else(|| embed_dim?.checked_div(n_heads?));
        let n_experts = stated("expert_count").unwrap_or_else(|| layout.n_experts());
        let n_experts_used = stated("expert_used_count").unwrap_or(0);
        // olmoe files state the width of their experts as the one of a dense layer; the matrices always tell it.
        let expert_dim = stated("expert_feed_forward_length")
            .or_else(|| expert_rows(layout))
            .or_else(|| stated("feed_forward_length"))
            .filter(|_| n_experts > 0);
        let vocab_size = stated("vocab_size")
            .or_else(|| match gguf.metadata().get("tokenizer.ggml.tokens") {
                Some(Value::Array(tokens)) => Some(tokens.len()),
                _ => None,
            })
            .or_else(|| gguf.tensor("token_embd.weight")?.shape.first().copied());

        Self {
            n_layers: stated("block_count").unwrap_or(layout.layers.len()),
            n_experts,
            n_experts_used,
            n_heads,
            n_kv_heads: stated("attention.head_count_kv").or(n_heads),
            head_dim,
            embed_dim,
            expert_dim,
            vocab_size,
            context_length: stated("context_length"),
            file_bytes: gguf.file_bytes(),
            n_shards: gguf.shards().len(),
            n_tensors: gguf.tensors().len(),
            n_weights: gguf.tensors().iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.n_elements())),
            dense_bytes: layout.dense_bytes(),
            expert_bytes: layout.expert_bytes(),
            bytes_per_expert: layout.mean_expert_bytes(),
            largest_expert_bytes: layout.largest_expert_bytes(),
            largest_dense_layer_bytes: layout.largest_dense_layer_bytes(),
            expert_bytes_per_token: layout.expert_bytes_per_token(n_experts_used),
            tensor_types: tensor_types(gguf),
            name: text(gguf, "general.name"),
            architecture,
        }
    }
}

/// The string under `key`, if it is one.
fn text(gguf: &Gguf, key: &str) -> Option<String> {
    match gguf.metadata().get(key) {
        Some(Value::String(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// The count under `key`: an integer, or the largest of an array with one for each layer.
fn count(gguf: &Gguf, key: &str) -> Option<usize> {
    let integer = match gguf.metadata().get(key)? {
        Value::Array(Array::Numbers(numbers)) => numbers.iter().filter_map(|number| number.as_integer()).max(),
        value => value.as_integer(),
    };
    usize::try_from(integer?).ok()
}

/// Rows of an expert's up matrix, from the first layer that has experts.
fn expert_rows(layout: &Layout) -> Option<usize> {
    let experts = layout.layers.iter().find_map(|layer| layer.experts.as_deref())?;
    let rows = |projection| experts.slice(projection, 0).map(|slice| slice.rows);
    rows(Projection::Up).or_else(|| rows(Projection::GateUp).map(|rows| rows / 2))
}

fn tensor_types(gguf: &Gguf) -> Vec<TypeUse> {
    let mut uses: Vec<TypeUse> = Vec::new();
    for tensor in gguf.tensors() {
        match uses.iter_mut().find(|used| used.ty == tensor.ty) {
            Some(used) => {
                used.n_tensors = used.n_tensors.saturating_add(1);
                used.bytes = used.bytes.saturating_add(tensor.bytes);
            }
            None => uses.push(TypeUse { ty: tensor.ty, n_tensors: 1, bytes: tensor.bytes }),
        }
    }
    uses.sort_by_key(|used| (std::cmp::Reverse(used.bytes), used.ty));
    uses
}
