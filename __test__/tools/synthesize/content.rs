//! The numbers of each tensor: spreads such that activations neither grow nor vanish, and the codes of [`super::hidden`].

use super::blocks::Filler;
use super::encode::encode;
use super::hidden::{EXPERT_VARIANCE, WEAK, squared_weights};
use super::plan::{Plan, Role, Tensor};
use super::random::Random;

/// Deviation of the logits without the bonus of the topic.
const LOGIT_SPREAD: f64 = 2.0;
/// Factor of attention's result: its variance then is like that of the experts' result over a few hundred tokens.
const ATTENTION_GAIN: f64 = 0.5;
/// Factor of queries and keys: scores have a deviation of its square, so that attention looks at some tokens more.
const HEAD_NORM: f64 = 1.4;
/// Mean of `silu(x)²` for normally distributed `x`, by numerical integration.
const SILU_VARIANCE: f64 = 0.3557;

/// Fills tensors of a plan. Rows depend on the seed, the tensor's name and the row where their strip begins.
#[derive(Debug)]
pub struct Content<'a> {
    plan: &'a Plan,
    expert_gain: f64,
}

impl<'a> Content<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        // gate and up give elements of variance 1, silu(gate) · up one of SILU_VARIANCE, and the weighted sum of the
        // used experts the share of it that the squared weights are.
        let share = squared_weights(&plan.shape, plan.hidden.router_spread(), plan.seed);
        Self { plan, expert_gain: (EXPERT_VARIANCE / (SILU_VARIANCE * share)).sqrt() }
    }

    /// Fills the rows of `tensor` from `first_row` on, as many as `bytes` holds.
    pub fn fill(&self, tensor: &Tensor, first_row: usize, bytes: &mut [u8]) {
        let mut random = Random::of(self.plan.seed, &tensor.name, first_row as u64);
        // All strips of a tensor share their scales.
        let mut pool = Random::of(self.plan.seed, &tensor.name, u64::MAX);
        let hidden = &self.plan.hidden;
        let (n_layers, cols) = (self.plan.shape.n_layers, tensor.cols());
        let even = 1.0 / (cols as f64).sqrt();
        match tensor.role {
            Role::Norm => factors(tensor, 0.9, 1.1, &mut random, bytes),
            Role::HeadNorm => factors(tensor, 0.8 * HEAD_NORM, 1.2 * HEAD_NORM, &mut random, bytes),
            Role::Router { layer } => {
                for row in bytes.chunks_exact_mut(tensor.row_bytes) {
                    encode(tensor.ty, &hidden.router_row(layer, &mut random), row);
                }
            }
            Role::Reading => Filler::new(tensor.ty, even, &mut pool).fill(&mut random, bytes),
            Role::AttentionOutput => self.adding(tensor, first_row, ATTENTION_GAIN * even, random, bytes),
            Role::ExpertOutput => self.adding(tensor, first_row, self.expert_gain * even, random, bytes),
            Role::Embedding => {
                let filler = Filler::new(tensor.ty, 1.0, &mut pool);
                self.with_codes(tensor, first_row, &filler, random, bytes, |token| hidden.embedding_code(token));
            }
            Role::Output => {
                let filler = Filler::new(tensor.ty, hidden.output_sigma(LOGIT_SPREAD, n_layers), &mut pool);
                self.with_codes(tensor, first_row, &filler, random, bytes, |token| hidden.output_code(token, n_layers));
            }
        }
    }

    /// Matrices that add to the residual stream: their first rows, which add to the code area, are weak.
    fn adding(&self, tensor: &Tensor, first_row: usize, sigma: f64, mut random: Random, bytes: &mut [u8]) {
        let mut pool = Random::of(self.plan.seed, &tensor.name, u64::MAX);
        let full = Filler::new(tensor.ty, sigma, &mut pool);
        let weak = Filler::new(tensor.ty, sigma * WEAK, &mut pool);
        let code_dims = self.plan.hidden.code_dims();
        for (i, row) in bytes.chunks_exact_mut(tensor.row_bytes).enumerate() {
            let is_weak = (first_row + i) % tensor.matrix_rows() < code_dims;
            (if is_weak { &weak } else { &full }).fill(&mut random, row);
        }
    }

    /// Rows of the vocabulary: a code, then random numbers.
    fn with_codes(
        &self,
        tensor: &Tensor,
        first_row: usize,
        filler: &Filler,
        mut random: Random,
        bytes: &mut [u8],
        code: impl Fn(usize) -> Vec<f32>,
    ) {
        let code_dims = self.plan.hidden.code_dims();
        let code_bytes = tensor.ty.row_bytes(code_dims).expect("the plan checked that codes are whole blocks");
        for (i, row) in bytes.chunks_exact_mut(tensor.row_bytes).enumerate() {
            let (codes, others) = row.split_at_mut(code_bytes);
            if code_dims > 0 {
                encode(tensor.ty, &code(first_row + i), codes);
            }
            filler.fill(&mut random, others);
        }
    }
}

/// One row of factors, evenly spread over `low..high`.
fn factors(tensor: &Tensor, low: f64, high: f64, random: &mut Random, bytes: &mut [u8]) {
    let values: Vec<f32> = (0..tensor.cols()).map(|_| random.uniform(low, high) as f32).collect();
    encode(tensor.ty, &values, bytes);
}
