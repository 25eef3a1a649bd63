//! What the file will hold: keys, tensors, types and places.

use super::SynthesizeError;
use super::encode::ENCODABLE;
use super::gguf::{self, ALIGNMENT, Entry, Keys};
use super::hidden::Hidden;
use super::options::Options;
use super::shape::Shape;
use super::vocabulary::Vocabulary;
use clutor::model::Architecture;
use clutor::quant::TensorType;

/// The file to write.
#[derive(Debug)]
pub struct Plan {
    pub shape: Shape,
    pub seed: u64,
    pub hidden: Hidden,
    /// In the order of the file.
    pub tensors: Vec<Tensor>,
    /// Everything before the tensor data.
    pub head: Vec<u8>,
    /// Bytes of the whole file.
    pub file_bytes: u64,
}

/// A tensor to write.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub role: Role,
    /// Outermost first.
    pub shape: Vec<usize>,
    pub ty: TensorType,
    /// From the begin of the file.
    pub offset: u64,
    pub row_bytes: usize,
}

/// What a tensor is for, which decides about its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Rows are residual streams to begin with.
    Embedding,
    /// Rows answer the last residual stream.
    Output,
    /// Factors after a norm of the residual stream.
    Norm,
    /// Factors after a norm of queries or keys.
    HeadNorm,
    /// Rows answer the residual stream in this layer.
    Router { layer: usize },
    /// Reads the normed residual stream.
    Reading,
    /// Adds attention's result to the residual stream.
    AttentionOutput,
    /// Adds an expert's result to the residual stream.
    ExpertOutput,
}

impl Role {
    /// Whether the numbers are chosen, not only their spread.
    fn is_chosen(self) -> bool {
        matches!(self, Self::Embedding | Self::Output | Self::Norm | Self::HeadNorm | Self::Router { .. })
    }
}

impl Tensor {
    /// Elements of a row.
    pub fn cols(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// Rows in all, those of every expert.
    pub fn rows(&self) -> usize {
        self.shape[..self.shape.len() - 1].iter().product()
    }

    /// Rows of one matrix.
    pub fn matrix_rows(&self) -> usize {
        self.shape.iter().rev().nth(1).copied().unwrap_or(1)
    }

    pub fn bytes(&self) -> u64 {
        self.row_bytes as u64 * self.rows() as u64
    }
}

/// Types of the tensors, by role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    base: TensorType,
    /// `attn_v` and `ffn_down` of the layers that get more bits.
    more: TensorType,
    embedding: TensorType,
    output: TensorType,
    /// llama.cpp's number of the mix, where it is one of its mixes.
    file_type: Option<u32>,
}

/// llama.cpp's mixes; `Q5_K_M` has its embedding in `Q6_K`, which this writer can fill.
const MIXES: [(&str, Mix); 2] = {
    use TensorType::{Q4_K, Q5_K, Q6_K};
    [
        ("Q4_K_M", Mix { base: Q4_K, more: Q6_K, embedding: Q4_K, output: Q6_K, file_type: Some(15) }),
        ("Q5_K_M", Mix { base: Q5_K, more: Q6_K, embedding: Q6_K, output: Q6_K, file_type: Some(17) }),
    ]
};

impl Mix {
    /// The mix called `name`; a type's name is a mix of that type alone, with the embedding and the output in one that
    /// can hold chosen numbers.
    pub fn named(name: &str) -> Result<Self, SynthesizeError> {
        if let Some((_, mix)) = MIXES.iter().find(|(mix, _)| *mix == name) {
            return Ok(*mix);
        }
        let ty = named_type(name)?;
        let encodable = ENCODABLE.contains(&ty);
        let (embedding, output) = match ty.block_len() {
            _ if encodable => (ty, ty),
            256 => (TensorType::Q4_K, TensorType::Q6_K),
            _ => (TensorType::Q4_0, TensorType::Q8_0),
        };
        Ok(Self { base: ty, more: ty, embedding, output, file_type: None })
    }

    /// Every name that [`Mix::named`] knows.
    pub fn names() -> Vec<&'static str> {
        MIXES.iter().map(|(name, _)| *name).chain(types().map(TensorType::name)).collect()
    }
}

/// The type of some tensors, by a part of their names.
#[derive(Clone, Debug)]
pub struct TypeRule {
    part: String,
    ty: TensorType,
}

impl TypeRule {
    /// Reads `PART=TYPE`.
    pub fn parse(text: &str) -> Result<Self, SynthesizeError> {
        let (part, ty) = text.split_once('=').ok_or_else(|| SynthesizeError::Value {
            option: "--tensor-type".into(),
            found: text.into(),
            expected: "PART=TYPE",
        })?;
        Ok(Self { part: part.into(), ty: named_type(ty)? })
    }
}

/// The types that the engine can multiply with.
fn types() -> impl Iterator<Item = TensorType> {
    (0..64).filter_map(TensorType::from_id).filter(|ty| ty.activation_format().is_some())
}

fn named_type(name: &str) -> Result<TensorType, SynthesizeError> {
    types()
        .find(|ty| ty.name() == name)
        .ok_or_else(|| SynthesizeError::Type { found: name.into(), known: Mix::names().join(", ") })
}

impl Plan {
    pub fn new(options: &Options) -> Result<Self, SynthesizeError> {
        let hidden = Hidden::new(&options.shape, &options.routing, options.seed)?;
        let mut tensors = tensors(&options.shape, &options.mix);
        for tensor in &mut tensors {
            for rule in options.rules.iter().filter(|rule| tensor.name.contains(&rule.part)) {
                tensor.ty = rule.ty;
            }
            check_type(tensor, &hidden)?;
        }
        if let Some(rule) = options.rules.iter().find(|rule| !tensors.iter().any(|t| t.name.contains(&rule.part))) {
            return Err(SynthesizeError::NoTensor { part: rule.part.clone() });
        }
        let keys = keys(options)?;
        let mut end = 0;
        for tensor in &mut tensors {
            tensor.row_bytes = tensor.ty.row_bytes(tensor.cols()).expect("checked above");
            tensor.offset = end;
            end = (end + tensor.bytes()).next_multiple_of(ALIGNMENT);
        }
        let entries = tensors.iter().map(|Tensor { name, shape, ty, offset, .. }| Entry {
            name,
            shape,
            type_id: *ty as u32,
            offset: *offset,
        });
        let head = gguf::head(&keys, entries);
        tensors.iter_mut().for_each(|tensor| tensor.offset += head.len() as u64);
        let file_bytes = head.len() as u64 + end;
        Ok(Self { shape: options.shape.clone(), seed: options.seed, hidden, tensors, head, file_bytes })
    }
}

/// The type must have whole blocks in a row, and in the codes of a row that has some.
fn check_type(tensor: &Tensor, hidden: &Hidden) -> Result<(), SynthesizeError> {
    let (ty, cols) = (tensor.ty, tensor.cols());
    if ty.row_bytes(cols).is_none() {
        let (tensor, block_len) = (tensor.name.clone(), ty.block_len());
        return Err(SynthesizeError::Blocks { tensor, cols, ty, block_len });
    }
    if tensor.role.is_chosen() && !ENCODABLE.contains(&ty) {
        let known = ENCODABLE.map(TensorType::name).join(", ");
        return Err(SynthesizeError::NotEncodable { tensor: tensor.name.clone(), ty, known });
    }
    let has_codes = matches!(tensor.role, Role::Embedding | Role::Output);
    if has_codes && ty.row_bytes(hidden.code_dims()).is_none() {
        return Err(SynthesizeError::Shape {
            why: format!(
                "the first {} elements of a row of `{}` are codes for the router, which are not whole {ty} blocks",
                hidden.code_dims(),
                tensor.name
            ),
            options: "--embed or the type, or use --uniform",
        });
    }
    Ok(())
}

/// All tensors, in the order and with the names of llama.cpp's files.
fn tensors(shape: &Shape, mix: &Mix) -> Vec<Tensor> {
    let (embed, experts, width) = (shape.embed_dim, shape.n_experts, shape.expert_dim);
    let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
    let (q_norm, k_norm) = match shape.architecture {
        Architecture::Qwen3Moe => (shape.head_dim, shape.head_dim),
        Architecture::Olmoe => (q_dim, kv_dim),
    };
    let mut tensors = Vec::new();
    let mut add = |name: String, role, shape: &[usize], ty| {
        tensors.push(Tensor { name: name + ".weight", role, shape: shape.into(), ty, offset: 0, row_bytes: 0 });
    };
    let f32 = TensorType::F32;
    add("output".into(), Role::Output, &[shape.vocab_size, embed], mix.output);
    add("output_norm".into(), Role::Norm, &[embed], f32);
    add("token_embd".into(), Role::Embedding, &[shape.vocab_size, embed], mix.embedding);
    for layer in 0..shape.n_layers {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let more = if shape.uses_more_bits(layer) { mix.more } else { mix.base };
        add(name("attn_k"), Role::Reading, &[kv_dim, embed], mix.base);
        add(name("attn_k_norm"), Role::HeadNorm, &[k_norm], f32);
        add(name("attn_norm"), Role::Norm, &[embed], f32);
        add(name("attn_output"), Role::AttentionOutput, &[embed, q_dim], mix.base);
        add(name("attn_q"), Role::Reading, &[q_dim, embed], mix.base);
        add(name("attn_q_norm"), Role::HeadNorm, &[q_norm], f32);
        add(name("attn_v"), Role::Reading, &[kv_dim, embed], more);
        add(name("ffn_down_exps"), Role::ExpertOutput, &[experts, embed, width], more);
        add(name("ffn_gate_exps"), Role::Reading, &[experts, width, embed], mix.base);
        add(name("ffn_gate_inp"), Role::Router { layer }, &[experts, embed], f32);
        add(name("ffn_norm"), Role::Norm, &[embed], f32);
        add(name("ffn_up_exps"), Role::Reading, &[experts, width, embed], mix.base);
    }
    tensors
}

fn keys(options: &Options) -> Result<Keys, SynthesizeError> {
    let shape = &options.shape;
    let arch = shape.architecture.name();
    let key = |name: &str| format!("{arch}.{name}");
    let mut keys = Keys::default();
    keys.string("general.architecture", arch);
    keys.string("general.type", "model");
    keys.string("general.name", &format!("{} synthetic", shape.preset));
    let given = options.given.join(" ");
    keys.string("general.description", &format!("random weights for measurements, made by: synthesize {given}"));
    keys.u32(&key("block_count"), shape.n_layers as u32);
    keys.u32(&key("context_length"), shape.n_ctx as u32);
    keys.u32(&key("embedding_length"), shape.embed_dim as u32);
    keys.u32(&key("feed_forward_length"), shape.expert_dim as u32);
    keys.u32(&key("attention.head_count"), shape.n_heads as u32);
    keys.u32(&key("attention.head_count_kv"), shape.n_kv_heads as u32);
    keys.f32(&key("rope.freq_base"), shape.rope_base);
    keys.f32(&key("attention.layer_norm_rms_epsilon"), shape.norm_eps);
    keys.u32(&key("expert_count"), shape.n_experts as u32);
    keys.u32(&key("expert_used_count"), shape.n_experts_used as u32);
    let (pre, eos) = match shape.architecture {
        Architecture::Qwen3Moe => {
            keys.u32(&key("attention.key_length"), shape.head_dim as u32);
            keys.u32(&key("attention.value_length"), shape.head_dim as u32);
            keys.u32(&key("expert_feed_forward_length"), shape.expert_dim as u32);
            ("qwen2", "<|im_end|>")
        }
        Architecture::Olmoe => ("olmo", "<|endoftext|>"),
    };
    keys.u32("general.quantization_version", 2);
    if let Some(file_type) = options.mix.file_type {
        keys.u32("general.file_type", file_type);
    }
    let vocabulary = Vocabulary::new(shape.vocab_size)?;
    keys.string("tokenizer.ggml.model", "gpt2");
    keys.string("tokenizer.ggml.pre", pre);
    keys.strings("tokenizer.ggml.tokens", &vocabulary.tokens);
    keys.i32s("tokenizer.ggml.token_type", &vocabulary.types);
    keys.strings("tokenizer.ggml.merges", &vocabulary.merges);
    keys.u32("tokenizer.ggml.bos_token_id", vocabulary.control("<|endoftext|>"));
    keys.u32("tokenizer.ggml.eos_token_id", vocabulary.control(eos));
    keys.u32("tokenizer.ggml.padding_token_id", vocabulary.control("<|endoftext|>"));
    keys.bool("tokenizer.ggml.add_bos_token", false);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::super::options::{Command, parse};
    use super::*;

    fn plan(line: &str) -> Result<Plan, SynthesizeError> {
        match parse(line.split_whitespace().map(String::from))? {
            Command::Write(options) => Plan::new(&options),
            Command::Help => panic!("{line} asks for no help"),
        }
    }

    fn ty(plan: &Plan, name: &str) -> TensorType {
        plan.tensors.iter().find(|tensor| tensor.name == name).expect("a tensor of this name").ty
    }

    #[test]
    fn the_large_preset_is_as_large_as_the_model_that_it_stands_for() {
        let plan = plan("qwen3-30b-a3b out.gguf").unwrap();
        // The published Q4_K_M file has 18.56 GB.
        assert_eq!(plan.file_bytes / 10_000_000, 1855);
        assert_eq!(plan.tensors.len(), 579);
        assert_eq!(ty(&plan, "blk.0.ffn_down_exps.weight"), TensorType::Q6_K);
        assert_eq!(ty(&plan, "blk.6.ffn_down_exps.weight"), TensorType::Q4_K);
        assert_eq!(ty(&plan, "blk.6.ffn_gate_inp.weight"), TensorType::F32);
    }

    #[test]
    fn rules_change_the_types_of_single_tensors() {
        let plan =
            plan("tiny-olmoe out.gguf --type Q8_0 --tensor-type exps=Q4_0 --tensor-type blk.1.ffn_up=F16").unwrap();
        assert_eq!(ty(&plan, "blk.1.ffn_up_exps.weight"), TensorType::F16);
        assert_eq!(ty(&plan, "blk.2.ffn_up_exps.weight"), TensorType::Q4_0);
        assert_eq!(ty(&plan, "blk.2.attn_q.weight"), TensorType::Q8_0);
    }

    #[test]
    fn what_cannot_be_written_is_said_with_the_tensor() {
        let cases = [
            ("tiny-olmoe o --expert-dim 96", "`blk.0.ffn_down_exps.weight` has rows of 96 elements"),
            ("tiny-olmoe o --tensor-type token_embd=IQ3_S", "`token_embd.weight` holds chosen numbers"),
            ("tiny-olmoe o --tensor-type nothing=F16", "no tensor's name contains `nothing`"),
            ("tiny-qwen3moe o --embed 256", "codes for the router"),
            ("tiny-qwen3moe o --topics 300", "--topics"),
        ];
        for (line, part) in cases {
            let error = plan(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
