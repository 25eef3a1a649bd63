//! Hyper-parameters, read from a file's metadata and checked against each other.

use super::{CacheType, HeadShape, ModelError};
use crate::gguf::Metadata;
use crate::math::RopeScaling;
use crate::routing::RoutingRule;

/// Architectures that the forward pass knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// OLMoE: query and key norms over the whole projection, raw router probabilities as weights.
    Olmoe,
    /// Qwen3-MoE: query and key norms per head, router weights divided by their sum.
    Qwen3Moe,
}

impl Architecture {
    /// Every architecture, in the order of their names.
    pub const ALL: [Self; 2] = [Self::Olmoe, Self::Qwen3Moe];

    /// Name as `general.architecture` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Olmoe => "olmoe",
            Self::Qwen3Moe => "qwen3moe",
        }
    }
}

/// Hyper-parameters of a model; names are the field's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which forward pass.
    pub architecture: Architecture,
    /// Layers, L.
    pub n_layers: usize,
    /// Width of the residual stream, E.
    pub embed_dim: usize,
    /// Query heads, H.
    pub n_heads: usize,
    /// Key/value heads, KVH; `n_heads` is a multiple.
    pub n_kv_heads: usize,
    /// Width of a head, D; not always `embed_dim / n_heads`.
    pub head_dim: usize,
    /// Experts per layer, X.
    pub n_experts: usize,
    /// Width of an expert, F.
    pub expert_dim: usize,
    /// How experts are chosen and weighted.
    pub routing: RoutingRule,
    /// Positions that the model was trained for.
    pub context_length: usize,
    /// Added to the mean square in every norm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Scaling of the rotary positions.
    pub rope_scaling: RopeScaling,
}

/// More than any model has; a larger number is damage or malice.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_EXPERTS: usize = 1 << 16;

impl Config {
    /// Reads the hyper-parameters of a supported architecture.
    ///
    /// # Errors
    /// Where the architecture is missing or not supported, a key is missing or of the wrong type, or values are
    /// implausible or contradict each other.
    pub fn read(metadata: &Metadata) -> Result<Self, ModelError> {
        let name = metadata.require_str("general.architecture")?;
        let architecture = Architecture::ALL.into_iter().find(|a| a.name() == name).ok_or_else(|| {
            let supported = Architecture::ALL.map(Architecture::name).join(", ");
            ModelError::Architecture { name: name.escape_debug().take(80).collect(), supported }
        })?;
        let keys = Keys { metadata, arch: architecture.name() };

        let n_layers = keys.count("block_count", MAX_LAYERS)?;
        let embed_dim = keys.count("embedding_length", MAX_WIDTH)?;
        let n_heads = keys.count("attention.head_count", MAX_WIDTH)?;
        let n_kv_heads = keys.count_or("attention.head_count_kv", MAX_WIDTH, n_heads)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(keys.contradiction(
                "attention.head_count_kv",
                n_kv_heads,
                format!("{n_heads} query heads cannot share {n_kv_heads} key heads evenly"),
            ));
        }
        let head_dim = keys.count_or("attention.key_length", MAX_WIDTH, embed_dim / n_heads)?;
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            let why = "a head must have an even, positive width, for the rotary embedding pairs its elements";
            return Err(keys.contradiction("attention.key_length", head_dim, why.into()));
        }
        for same in ["attention.value_length", "rope.dimension_count"] {
            let value = keys.count_or(same, MAX_WIDTH, head_dim)?;
            if value != head_dim {
                return Err(keys.contradiction(
                    same,
                    value,
                    format!("a width other than the key's {head_dim} is not supported"),
                ));
            }
        }

        let n_experts = keys.count("expert_count", MAX_EXPERTS)?;
        let n_used = keys.count("expert_used_count", n_experts)?;
        let expert_dim = match keys.optional("expert_feed_forward_length", MAX_WIDTH)? {
            Some(dim) => dim,
            // olmoe files state the experts' width here.
            None => keys.count("feed_forward_length", MAX_WIDTH)?,
        };
        let normalise = metadata.get_bool(&keys.key("expert_weights_norm"))?;
        // A scale of 0 means "none", as llama.cpp reads it.
        let scale = keys.float("expert_weights_scale")?.filter(|scale| *scale != 0.0).unwrap_or(1.0);

        let norm_eps = keys.float("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5);
        let rope_base = keys.float("rope.freq_base")?.unwrap_or(10000.0);
        if !(0.0..=1.0).contains(&norm_eps) {
            return Err(keys.contradiction("attention.layer_norm_rms_epsilon", norm_eps, "expected 0 to 1".into()));
        }
        if rope_base <= 1.0 {
            return Err(keys.contradiction("rope.freq_base", rope_base, "expected a number above 1".into()));
        }
        let context_length = keys.count("context_length", usize::MAX)?;

        Ok(Self {
            architecture,
            n_layers,
            embed_dim,
            n_heads,
            n_kv_heads,
            head_dim,
            n_experts,
            expert_dim,
            routing: RoutingRule {
                n_used,
                normalise: normalise.unwrap_or(architecture == Architecture::Qwen3Moe),
                scale,
            },
            context_length,
            norm_eps,
            rope_base,
            rope_scaling: keys.rope_scaling(context_length)?,
        })
    }

    /// Width of the query vectors of all heads, H·D.
    pub fn q_dim(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of the key (or value) vectors of all heads, KVH·D.
    pub fn kv_dim(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Bytes of the keys and values of one position in a cache of type `ty`.
    pub fn position_bytes(&self, ty: CacheType) -> usize {
        2 * self.n_layers * ty.bytes(self.kv_dim())
    }

    /// Heads of each attention layer.
    pub fn heads(&self) -> HeadShape {
        HeadShape { n_heads: self.n_heads, n_kv_heads: self.n_kv_heads, head_dim: self.head_dim }
    }
}

/// Reads `<arch>.*` keys.
struct Keys<'a> {
    metadata: &'a Metadata,
    arch: &'static str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    fn contradiction(&self, name: &str, value: impl ToString, why: String) -> ModelError {
        ModelError::Contradiction { key: self.key(name), value: value.to_string(), why }
    }

    /// A required number from 1 to `most`.
    fn count(&self, name: &str, most: usize) -> Result<usize, ModelError> {
        let value = self.metadata.require_usize(&self.key(name))?;
        self.in_range(name, value, most)
    }

    /// A number from 1 to `most`, where the file states it.
    fn optional(&self, name: &str, most: usize) -> Result<Option<usize>, ModelError> {
        let value = self.metadata.get_usize(&self.key(name))?;
        value.map(|value| self.in_range(name, value, most)).transpose()
    }

    fn count_or(&self, name: &str, most: usize, default: usize) -> Result<usize, ModelError> {
        Ok(self.optional(name, most)?.unwrap_or(default))
    }

    fn in_range(&self, name: &str, value: usize, most: usize) -> Result<usize, ModelError> {
        if (1..=most).contains(&value) {
            return Ok(value);
        }
        Err(self.contradiction(name, value, format!("expected 1 to {most}")))
    }

    /// A finite number, where the file states it.
    fn float(&self, name: &str) -> Result<Option<f32>, ModelError> {
        match self.metadata.get_f32(&self.key(name))? {
            Some(value) if !value.is_finite() => {
                Err(self.contradiction(name, value, "expected a finite number".into()))
            }
            value => Ok(value),
        }
    }

    fn rope_scaling(&self, context_length: usize) -> Result<RopeScaling, ModelError> {
        let known = ["type", "factor", "original_context_length", "finetuned"];
        let prefix = self.key("rope.scaling.");
        let strange = self.metadata.iter().find_map(|(key, _)| {
            let name = key.strip_prefix(&prefix)?;
            (!known.contains(&name)).then(|| format!("rope.scaling.{name}"))
        });
        if let Some(name) = strange {
            return Err(self.contradiction(&name, "set", "this kind of rope scaling is not supported".into()));
        }
        let kind = self.metadata.get_str(&self.key("rope.scaling.type"))?;
        let factor = self.float("rope.scaling.factor")?.unwrap_or(1.0);
        if factor <= 0.0 {
            return Err(self.contradiction("rope.scaling.factor", factor, "expected a number above 0".into()));
        }
        match kind.as_deref() {
            None | Some("none") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear { factor }),
            Some("yarn") => {
                let original_context =
                    self.count_or("rope.scaling.original_context_length", usize::MAX, context_length)?;
                Ok(RopeScaling::Yarn { factor, original_context })
            }
            Some(other) => Err(self.contradiction("rope.scaling.type", other, "expected none, linear or yarn".into())),
        }
    }
}
