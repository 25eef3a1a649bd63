//! Shapes of models: the presets and their numbers.

use super::SynthesizeError;
use clutor::model::Architecture;

/// Hyper-parameters of the model to write; names are the field's own, as in [`clutor::model::Config`].
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Name of the preset.
    pub preset: &'static str,
    pub architecture: Architecture,
    pub n_layers: usize,
    pub embed_dim: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub n_experts: usize,
    pub n_experts_used: usize,
    pub expert_dim: usize,
    pub vocab_size: usize,
    pub n_ctx: usize,
    pub rope_base: f32,
    pub norm_eps: f32,
}

/// Sources: the `config.json` of Qwen/Qwen3-30B-A3B and of allenai/OLMoE-1B-7B-0924. The tiny ones are ours.
pub const PRESETS: [Shape; 4] = [
    Shape {
        preset: "qwen3-30b-a3b",
        architecture: Architecture::Qwen3Moe,
        n_layers: 48,
        embed_dim: 2048,
        n_heads: 32,
        n_kv_heads: 4,
        head_dim: 128,
        n_experts: 128,
        n_experts_used: 8,
        expert_dim: 768,
        vocab_size: 151_936,
        n_ctx: 40_960,
        rope_base: 1e6,
        norm_eps: 1e-6,
    },
    Shape {
        preset: "olmoe-1b-7b",
        architecture: Architecture::Olmoe,
        n_layers: 16,
        embed_dim: 2048,
        n_heads: 16,
        n_kv_heads: 16,
        head_dim: 128,
        n_experts: 64,
        n_experts_used: 8,
        expert_dim: 1024,
        vocab_size: 50_304,
        n_ctx: 4096,
        rope_base: 1e4,
        norm_eps: 1e-5,
    },
    Shape {
        preset: "tiny-qwen3moe",
        architecture: Architecture::Qwen3Moe,
        n_layers: 4,
        embed_dim: 512,
        n_heads: 8,
        n_kv_heads: 2,
        head_dim: 64,
        n_experts: 32,
        n_experts_used: 4,
        expert_dim: 256,
        vocab_size: 2048,
        n_ctx: 1024,
        rope_base: 1e6,
        norm_eps: 1e-6,
    },
    Shape {
        preset: "tiny-olmoe",
        architecture: Architecture::Olmoe,
        n_layers: 4,
        embed_dim: 512,
        n_heads: 8,
        n_kv_heads: 8,
        head_dim: 64,
        n_experts: 32,
        n_experts_used: 4,
        expert_dim: 256,
        vocab_size: 2048,
        n_ctx: 1024,
        rope_base: 1e4,
        norm_eps: 1e-5,
    },
];

impl Shape {
    /// The preset called `name`.
    pub fn preset(name: &str) -> Result<Self, SynthesizeError> {
        PRESETS.into_iter().find(|shape| shape.preset == name).ok_or_else(|| SynthesizeError::Preset {
            found: name.into(),
            known: PRESETS.map(|shape| shape.preset).join(", "),
        })
    }

    /// Checks the numbers against each other.
    pub fn check(&self) -> Result<(), SynthesizeError> {
        let wrong = |why: String, options| Err(SynthesizeError::Shape { why, options });
        match self {
            s if !s.n_heads.is_multiple_of(s.n_kv_heads) => wrong(
                format!("{} query heads cannot share {} key heads evenly", s.n_heads, s.n_kv_heads),
                "--heads or --kv-heads",
            ),
            s if !s.head_dim.is_multiple_of(2) => {
                wrong(format!("a head of {} elements has no pairs to rotate", s.head_dim), "--head-dim")
            }
            // This architecture's files state no width of a head, so readers divide.
            s if s.architecture == Architecture::Olmoe && s.q_dim() != s.embed_dim => wrong(
                format!("{} heads of {} are not the width of {}", s.n_heads, s.head_dim, s.embed_dim),
                "--heads, --head-dim or --embed: in olmoe the product of the first two is the third",
            ),
            s if s.n_experts_used > s.n_experts => {
                wrong(format!("{} of {} experts cannot be used", s.n_experts_used, s.n_experts), "--used or --experts")
            }
            _ => Ok(()),
        }
    }

    /// Width of all query heads.
    pub fn q_dim(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of all key heads, and of all value heads.
    pub fn kv_dim(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Whether the weights of a token's experts are divided by their sum.
    pub fn normalises(&self) -> bool {
        self.architecture == Architecture::Qwen3Moe
    }

    /// Whether llama.cpp's `_M` mixes give `layer` more bits: the first and last eighth, and every third between.
    ///
    /// Source: `use_more_bits` of llama.cpp's quantizer.
    pub fn uses_more_bits(&self, layer: usize) -> bool {
        let eighth = self.n_layers / 8;
        layer < eighth || layer >= 7 * self.n_layers / 8 || (layer - eighth) % 3 == 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_consistent_and_contradictions_name_the_options() {
        for shape in PRESETS {
            shape.check().unwrap();
        }
        let shape = Shape { n_experts_used: 33, ..PRESETS[2].clone() };
        assert!(shape.check().unwrap_err().to_string().contains("--used or --experts"));
    }

    #[test]
    fn half_of_the_layers_get_more_bits() {
        let shape = Shape::preset("qwen3-30b-a3b").unwrap();
        let layers: Vec<usize> = (0..48).filter(|layer| shape.uses_more_bits(*layer)).collect();
        assert_eq!(layers.len(), 24);
        assert_eq!((&layers[..8], layers[23]), (&[0, 1, 2, 3, 4, 5, 8, 11][..], 47));
    }
}
