//! Runs a given text through a model: logits for comparison with other engines, and perplexity.

use super::GenerateError;
use crate::guard::Memory;
use crate::model::{BatchToken, Model, RoutingObserver, Workspace};
use crate::routing::Choice;

/// Tokens of a pass at most, whatever batch is asked for: buffers grow with it, and beyond this nothing gets faster.
const MAX_BATCH: usize = 4096;

/// Tokens of a pass where `asked` are asked for: no more than planned, where memory is planned to the byte.
fn batch_of(model: &Model, asked: usize) -> usize {
    let plan = model.plan();
    asked.min(if plan.streaming { plan.batch_tokens } else { MAX_BATCH })
}

/// Everything that a model says about a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Number of tokens.
    pub n_tokens: usize,
    /// `[n_tokens, vocab_size]`.
    pub logits: Vec<f32>,
    /// `[n_tokens, n_layers, n_experts]`.
    pub router_logits: Vec<f32>,
    /// Chosen experts, likeliest first, `[n_tokens, n_layers, n_used]`.
    pub topk: Vec<i32>,
    /// Their weights, `[n_tokens, n_layers, n_used]`.
    pub weights: Vec<f32>,
}

/// Runs `ids` through the model in chunks of `batch` tokens and records all logits and choices.
///
/// The result does not depend on `batch`. `progress` is told how many tokens are done; `cancelled` is asked before each
/// layer.
///
/// # Errors
/// Where the text is empty or longer than the context, an id is unknown, an expert cannot be read, or it is cancelled.
///
/// # Panics
/// If `batch` is zero.
pub fn logits(
    model: &Model,
    ids: &[u32],
    batch: usize,
    cancelled: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(usize),
) -> Result<Recording, GenerateError> {
    check_length(model, ids)?;
    check_memory(model, ids)?;
    let config = model.config();
    let mut record = Recorder {
        n_layers: config.n_layers,
        n_used: config.routing.n_used,
        first: 0,
        recording: Recording {
            n_tokens: ids.len(),
            logits: Vec::new(),
            router_logits: vec![0.0; ids.len() * config.n_layers * config.n_experts],
            topk: vec![0; ids.len() * config.n_layers * config.routing.n_used],
            weights: vec![0.0; ids.len() * config.n_layers * config.routing.n_used],
        },
    };
    let mut logits = Vec::with_capacity(ids.len() * model.vocab_size());
    let (mut workspace, mut sequence) = (Workspace::new(), model.new_sequence());
    for chunk in ids.chunks(batch_of(model, batch)) {
        let tokens = tokens(chunk, record.first, true);
        let mut take = |piece: &[f32]| logits.extend_from_slice(piece);
        model.forward_in_pieces(
            &mut workspace,
            &mut [&mut sequence],
            &tokens,
            Some(&mut record),
            &mut take,
            cancelled,
        )?;
        record.first += chunk.len();
        progress(record.first);
    }
    Ok(Recording { logits, ..record.recording })
}

/// How well a model predicts a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// Mean negative log-likelihood of the predicted tokens, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    pub perplexity: f64,
    /// Tokens predicted.
    pub tokens: usize,
}

/// Perplexity of `ids` over windows of `window` tokens that do not overlap: every token but each window's first is
/// predicted from those before it in its window. A rest shorter than a window counts too, if it has two tokens.
///
/// `progress` is told the tokens done and the mean so far; `cancelled` is asked before each layer.
///
/// # Errors
/// Where the text or the window is shorter than two tokens, the window exceeds the context, an id is unknown, an expert
/// cannot be read, or it is cancelled.
///
/// # Panics
/// If `batch` is zero.
pub fn perplexity(
    model: &Model,
    ids: &[u32],
    window: usize,
    batch: usize,
    cancelled: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(usize, f64),
) -> Result<Perplexity, GenerateError> {
    if window < 2 {
        return Err(GenerateError::Window { window });
    }
    if ids.len() < 2 {
        return Err(GenerateError::TextTooShort { tokens: ids.len() });
    }
    let (mut workspace, batch) = (Workspace::new(), batch_of(model, batch));
    let (mut sum, mut predicted) = (0.0, 0);
    for (i, ids) in ids.chunks(window).enumerate().filter(|(_, ids)| ids.len() > 1) {
        check_length(model, ids)?;
        let mut sequence = model.new_sequence();
        for (j, chunk) in ids.chunks(batch).enumerate() {
            let first = j * batch;
            let mut next = ids[first + 1..].iter();
            let mut take = |piece: &[f32]| {
                for (logits, &next) in piece.chunks_exact(model.vocab_size()).zip(&mut next) {
                    sum += negative_log_likelihood(logits, next as usize);
                    predicted += 1;
                }
            };
            let tokens = tokens(chunk, first, true);
            model.forward_in_pieces(&mut workspace, &mut [&mut sequence], &tokens, None, &mut take, cancelled)?;
        }
        progress(i * window + ids.len(), sum / predicted as f64);
    }
    let nll = sum / predicted as f64;
    Ok(Perplexity { nll, perplexity: libm::exp(nll), tokens: predicted })
}

fn check_length(model: &Model, ids: &[u32]) -> Result<(), GenerateError> {
    match ids.len() {
        0 => Err(GenerateError::EmptyPrompt),
        n if n > model.n_ctx() => Err(GenerateError::TextTooLong { tokens: n, n_ctx: model.n_ctx() }),
        _ => Ok(()),
    }
}

/// An allocation that fails ends the process, and one that the system grants without having it ends it later.
fn check_memory(model: &Model, ids: &[u32]) -> Result<(), GenerateError> {
    let config = model.config();
    let routed = config.n_layers * (config.n_experts + 2 * config.routing.n_used);
    let bytes = (ids.len() as u64).saturating_mul(4 * (model.vocab_size() + routed) as u64);
    match Memory::detect() {
        Some(memory) if bytes > memory.available_bytes => {
            Err(GenerateError::TooLarge { tokens: ids.len(), mib: bytes >> 20 })
        }
        _ => Ok(()),
    }
}

fn tokens(ids: &[u32], first: usize, wants_logits: bool) -> Vec<BatchToken> {
    let token = |(i, &id)| BatchToken { sequence: 0, pos: first + i, id, wants_logits };
    ids.iter().enumerate().map(token).collect()
}

fn negative_log_likelihood(logits: &[f32], target: usize) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| libm::exp(f64::from(logit) - largest)).sum();
    libm::log(sum) + largest - f64::from(logits[target])
}

/// Puts what each layer of a chunk says in its place.
struct Recorder {
    n_layers: usize,
    n_used: usize,
    /// First token of the current chunk.
    first: usize,
    recording: Recording,
}

impl RoutingObserver for Recorder {
    fn routed(&mut self, layer: usize, router_logits: &[f32], choices: &[Choice]) {
        let n_experts = router_logits.len() / (choices.len() / self.n_used);
        let rows = router_logits.chunks_exact(n_experts).zip(choices.chunks_exact(self.n_used));
        for (token, (logits, choices)) in rows.enumerate() {
            let row = (self.first + token) * self.n_layers + layer;
            self.recording.router_logits[row * n_experts..(row + 1) * n_experts].copy_from_slice(logits);
            for (rank, choice) in choices.iter().enumerate() {
                self.recording.topk[row * self.n_used + rank] = choice.expert as i32;
                self.recording.weights[row * self.n_used + rank] = choice.weight;
            }
        }
    }
}
