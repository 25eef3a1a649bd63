//! The residual stream that the weights are made for: how routing becomes uneven, and how large numbers are.
//!
//! The first elements of the residual stream, [`Hidden::code_dims`], are a code area. Every token's embedding carries
//! there one code that all tokens share and the code of the token's topic. A router row answers the shared code with
//! the popularity of its expert, and a topic's code with that topic's preference for it; in all other elements it is
//! random, which makes the rest of the choice depend on token and context. Output rows answer the code of their own
//! token's topic, so that sampled text stays with a topic for a while. What layers add is weak in the code area
//! ([`WEAK`]), so the codes last to the output.
//!
//! Codes are rows of a Hadamard matrix with signs of its columns drawn at random: orthogonal, so that each answer is
//! what was asked for.

use super::SynthesizeError;
use super::options::Routing;
use super::random::Random;
use super::shape::Shape;

/// Gain in the code area of the matrices that add to the residual stream.
pub const WEAK: f64 = 0.25;
/// Widest code area: 256 elements are one block of the largest formats.
const MOST_CODE_DIMS: usize = 256;
/// Variance that a layer adds to each element of the residual stream, roughly: what the experts add by
/// [`EXPERT_VARIANCE`], and attention over a few hundred tokens.
const LAYER_VARIANCE: f64 = 0.08;
/// Variance that a layer's experts add to each element.
pub const EXPERT_VARIANCE: f64 = 0.06;
/// Spread of the router's logits for a strength of 1; the default strengths together give 1.9.
const ROUTER_SCALE: f64 = 1.2;

/// The residual stream to expect.
#[derive(Debug)]
pub struct Hidden {
    embed_dim: usize,
    routing: Routing,
    seed: u64,
    /// Signs of the columns, `[code_dims]`; empty where routing is uniform.
    signs: Vec<f32>,
}

impl Hidden {
    pub fn new(shape: &Shape, routing: &Routing, seed: u64) -> Result<Self, SynthesizeError> {
        let widest = (shape.embed_dim / 2).clamp(1, MOST_CODE_DIMS);
        let code_dims = if routing.uniform { 0 } else { 1 << widest.ilog2() };
        if !routing.uniform && routing.topics >= code_dims {
            return Err(SynthesizeError::Shape {
                why: format!("{} topics do not fit into {code_dims} elements", routing.topics),
                options: "--topics or --embed, or use --uniform",
            });
        }
        let mut random = Random::of(seed, "signs of the codes", 0);
        let signs = (0..code_dims).map(|_| random.sign()).collect();
        Ok(Self { embed_dim: shape.embed_dim, routing: routing.clone(), seed, signs })
    }

    /// Elements of the code area; 0 where routing is uniform.
    pub fn code_dims(&self) -> usize {
        self.signs.len()
    }

    /// Number of topics; 0 where routing is uniform.
    pub fn topics(&self) -> usize {
        if self.routing.uniform { 0 } else { self.routing.topics }
    }

    /// Topic of token `token`.
    pub fn topic(&self, token: usize) -> usize {
        (Random::of(self.seed, "topics", token as u64).bits() % self.topics() as u64) as usize
    }

    /// What the embedding of `token` holds in the code area, `[code_dims]`.
    pub fn embedding_code(&self, token: usize) -> Vec<f32> {
        let topic = self.topic(token);
        (0..self.code_dims()).map(|i| self.shared(i) + self.of_topic(topic, i)).collect()
    }

    /// What the output row of `token` holds in the code area, `[code_dims]`: a text of the token's topic gives its
    /// logit the bonus.
    pub fn output_code(&self, token: usize, n_layers: usize) -> Vec<f32> {
        let topic = self.topic(token);
        let answer = (self.routing.stay * self.rms(n_layers as f64) / self.code_dims() as f64) as f32;
        (0..self.code_dims()).map(|i| answer * self.of_topic(topic, i)).collect()
    }

    /// A router row, `[embed_dim]`.
    pub fn router_row(&self, layer: usize, random: &mut Random) -> Vec<f32> {
        // The router sees the stream after attention, in the middle of the layer.
        let depth = layer as f64 + 0.5;
        let rms = self.rms(depth);
        let mut row = vec![0.0; self.embed_dim];
        let (codes, others) = row.split_at_mut(self.code_dims());
        if !self.routing.uniform {
            let answer = ROUTER_SCALE * rms / codes.len() as f64;
            let popularity = (answer * self.routing.skew * random.normal()) as f32;
            codes.iter_mut().enumerate().for_each(|(i, x)| *x = popularity * self.shared(i));
            for topic in 0..self.topics() {
                let preference = (answer * self.routing.preference * random.normal()) as f32;
                codes.iter_mut().enumerate().for_each(|(i, x)| *x += preference * self.of_topic(topic, i));
            }
        }
        let noise = if self.routing.uniform { 1.0 } else { self.routing.noise };
        let sigma = ROUTER_SCALE * noise * rms / self.energy_outside(depth).sqrt();
        others.iter_mut().for_each(|x| *x = (sigma * random.normal()) as f32);
        row
    }

    /// Spread of the router's logits.
    pub fn router_spread(&self) -> f64 {
        let Routing { uniform, skew, preference, noise, .. } = self.routing;
        if uniform {
            ROUTER_SCALE
        } else {
            ROUTER_SCALE * (skew * skew + preference * preference + noise * noise).sqrt()
        }
    }

    /// Deviation of output weights outside the code area for which logits have deviation `spread` without the bonus.
    pub fn output_sigma(&self, spread: f64, n_layers: usize) -> f64 {
        let depth = n_layers as f64;
        spread * self.rms(depth) / self.energy_outside(depth).sqrt()
    }

    /// Root mean square of the stream after `depth` layers.
    fn rms(&self, depth: f64) -> f64 {
        // Two codes of elements of magnitude 1.
        let energy = 2.0 * self.code_dims() as f64 + self.energy_outside(depth);
        (energy / self.embed_dim as f64).sqrt()
    }

    /// Sum of the squares outside the code area after `depth` layers; embeddings have variance 1.
    fn energy_outside(&self, depth: f64) -> f64 {
        (self.embed_dim - self.code_dims()) as f64 * (1.0 + LAYER_VARIANCE * depth)
    }

    fn shared(&self, i: usize) -> f32 {
        self.code(0, i)
    }

    fn of_topic(&self, topic: usize, i: usize) -> f32 {
        self.code(topic + 1, i)
    }

    /// Element `i` of code `row`: the Hadamard matrix of Sylvester's construction has the parity of `row & i`.
    fn code(&self, row: usize, i: usize) -> f32 {
        let sign = self.signs[i];
        if (row & i).count_ones().is_multiple_of(2) { sign } else { -sign }
    }
}

/// Mean of the sum of the squared weights of a token's experts, where the router's logits have deviation `spread`: how
/// much of one expert's variance reaches the residual stream.
pub fn squared_weights(shape: &Shape, spread: f64, seed: u64) -> f64 {
    const TOKENS: usize = 200;
    let mut random = Random::of(seed, "squared weights", 0);
    let mut total = 0.0;
    for _ in 0..TOKENS {
        let mut weights: Vec<f64> = (0..shape.n_experts).map(|_| libm::exp(spread * random.normal())).collect();
        let mut sum: f64 = weights.iter().sum();
        weights.sort_by(|a, b| b.total_cmp(a));
        weights.truncate(shape.n_experts_used);
        if shape.normalises() {
            sum = weights.iter().sum();
        }
        total += weights.iter().map(|weight| (weight / sum) * (weight / sum)).sum::<f64>();
    }
    total / TOKENS as f64
}

#[cfg(test)]
mod tests {
    use super::super::shape::PRESETS;
    use super::*;

    fn dot(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
    }

    #[test]
    fn an_output_row_gives_the_bonus_to_its_own_topic_only() {
        let hidden = Hidden::new(&PRESETS[2], &Routing::default(), 1).unwrap();
        let same = (1..).find(|token| hidden.topic(*token) == hidden.topic(0)).unwrap();
        let other = (1..).find(|token| hidden.topic(*token) != hidden.topic(0)).unwrap();
        let logit = |token| dot(&hidden.output_code(0, 4), &hidden.embedding_code(token)) / hidden.rms(4.0);
        assert!((logit(same) - Routing::default().stay).abs() < 1e-4 && logit(other).abs() < 1e-4);
    }

    #[test]
    fn uniform_routing_has_no_codes() {
        let routing = Routing { uniform: true, ..Routing::default() };
        let hidden = Hidden::new(&PRESETS[2], &routing, 1).unwrap();
        assert_eq!((hidden.code_dims(), hidden.topics()), (0, 0));
        let row = hidden.router_row(0, &mut Random::of(1, "row", 0));
        let spread = dot(&row, &row).sqrt();
        // The logits of a stream of root mean square 1; four standard errors, 1/sqrt(2n), of 512 draws.
        assert!((spread / hidden.router_spread() - 1.0).abs() < 0.13, "{spread}");
    }

    #[test]
    fn normalised_weights_carry_more_than_raw_ones() {
        let normalised = squared_weights(&PRESETS[0], 1.75, 1);
        let raw = squared_weights(&Shape { architecture: PRESETS[1].architecture, ..PRESETS[0].clone() }, 1.75, 1);
        assert!(normalised > 1.0 / 8.0 && normalised < 0.4 && raw < normalised, "{normalised} {raw}");
    }
}
