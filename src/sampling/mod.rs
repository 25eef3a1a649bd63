//! From logits to the next token.
//!
//! The chain is llama.cpp's: repetition penalty, top-k, top-p, min-p, temperature, then a draw. The draw and its
//! exponentials are portable, so a seed gives the same text on every machine.

use crate::math::exp;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::cmp::Ordering;

/// How the next token is chosen. Names and defaults are llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 takes the likeliest token always.
    pub temperature: f32,
    /// Candidates kept; 0 keeps all.
    pub top_k: usize,
    /// Least probability mass kept, likeliest first; 1 keeps all.
    pub top_p: f32,
    /// Candidates below this share of the likeliest one's probability are dropped; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Recent tokens that the penalty looks at.
    pub repeat_last_n: usize,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1.0, repeat_last_n: 64, seed: 0 }
    }
}

/// An option outside its range.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{name} is {value}, but must be {range}")]
pub struct SamplingError {
    /// Name of the option.
    pub name: &'static str,
    /// What was given.
    pub value: f32,
    /// What is possible, in words.
    pub range: &'static str,
}

impl SamplingOptions {
    /// Checks every range.
    ///
    /// # Errors
    /// The first option that is out of its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        let wrong = |name, value, range| Err(SamplingError { name, value, range });
        match self {
            o if !(o.temperature >= 0.0 && o.temperature.is_finite()) => {
                wrong("temperature", o.temperature, "a finite number of at least 0")
            }
            o if !(o.top_p > 0.0 && o.top_p <= 1.0) => wrong("top_p", o.top_p, "above 0 and at most 1"),
            o if !(0.0..=1.0).contains(&o.min_p) => wrong("min_p", o.min_p, "from 0 to 1"),
            o if !(o.repeat_penalty > 0.0 && o.repeat_penalty.is_finite()) => {
                wrong("repeat_penalty", o.repeat_penalty, "a finite number above 0")
            }
            _ => Ok(()),
        }
    }
}

/// Draws tokens for one generation.
#[derive(Debug)]
pub struct Sampler {
    options: SamplingOptions,
    rng: ChaCha8Rng,
    /// Candidates of the current token, kept to save the allocation.
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    /// Probability, or a multiple of it.
    prob: f32,
}

impl Sampler {
    /// A sampler at the start of its seed's stream: ChaCha with 8 rounds, one 32-bit word per drawn token.
    pub fn new(options: SamplingOptions) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(options.seed);
        Self { options, rng, candidates: Vec::new() }
    }

    /// Chooses the next token from `logits`, `[vocab_size]`; `recent` are the tokens so far, the newest last.
    ///
    /// Equal logits are taken in the order of their ids. NaN counts as the least likely.
    ///
    /// # Panics
    /// If `logits` is empty.
    pub fn sample(&mut self, logits: &[f32], recent: &[u32]) -> u32 {
        assert!(!logits.is_empty());
        self.candidates.clear();
        let candidate = |(id, &logit): (usize, &f32)| {
            let logit = if logit.is_nan() { f32::NEG_INFINITY } else { logit };
            Candidate { id: id as u32, logit, prob: 0.0 }
        };
        self.candidates.extend(logits.iter().enumerate().map(candidate));
        self.penalise(recent);
        if self.options.temperature == 0.0 {
            return likeliest(&self.candidates);
        }
        self.keep_top_k();
        self.keep_top_p();
        self.keep_min_p();
        self.draw()
    }

    /// Source: Keskar et al. 2019, CTRL, arXiv 1909.05858, with the sign rule that llama.cpp applies.
    fn penalise(&mut self, recent: &[u32]) {
        let penalty = self.options.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        // Once per token, however often it occurs.
        let mut recent = recent[recent.len().saturating_sub(self.options.repeat_last_n)..].to_vec();
        recent.sort_unstable();
        recent.dedup();
        for id in recent {
            if let Some(candidate) = self.candidates.get_mut(id as usize) {
                let logit = candidate.logit;
                candidate.logit = if logit <= 0.0 { logit * penalty } else { logit / penalty };
            }
        }
    }

    /// Drops all but `top_k`, and sorts those, the likeliest first.
    ///
    /// Where all are kept they stay in the order of their ids: a sort of 152 k candidates costs more than the output
    /// layer of a small model.
    fn keep_top_k(&mut self) {
        let k = self.options.top_k;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, likelier_first);
            self.candidates.truncate(k);
            self.candidates.sort_unstable_by(likelier_first);
        }
    }

    /// Source: Holtzman et al. 2019, The Curious Case of Neural Text Degeneration, arXiv 1904.09751.
    fn keep_top_p(&mut self) {
        if self.options.top_p >= 1.0 {
            return;
        }
        let total = self.weigh(1.0);
        let enough = self.options.top_p * total;
        let (mut mass, mut kept) = (0.0, 0);
        // Sorted piece by piece: the mass is mostly in the first few.
        for piece in [256, 4096, usize::MAX] {
            let left = &mut self.candidates[kept..];
            let n = piece.min(left.len());
            if n < left.len() {
                left.select_nth_unstable_by(n, likelier_first);
            }
            left[..n].sort_unstable_by(likelier_first);
            for candidate in &left[..n] {
                mass += candidate.prob;
                kept += 1;
                if mass >= enough {
                    self.candidates.truncate(kept);
                    return;
                }
            }
        }
    }

    /// Source: Nguyen et al. 2024, Turning Up the Heat: Min-p Sampling, arXiv 2407.01082.
    fn keep_min_p(&mut self) {
        if self.options.min_p == 0.0 {
            return;
        }
        // The likeliest one weighs 1.
        self.weigh(1.0);
        let least = self.options.min_p;
        self.candidates.retain(|c| c.prob >= least);
    }

    fn draw(&mut self) -> u32 {
        let total = self.weigh(self.options.temperature);
        // 24 bits: every f32 in [0, 1) on that grid is exact.
        let unit = (self.rng.next_u32() >> 8) as f32 / (1 << 24) as f32;
        let mut left = unit * total;
        for candidate in &self.candidates {
            left -= candidate.prob;
            if left < 0.0 {
                return candidate.id;
            }
        }
        // Rounding can leave a crumb: it belongs to the last candidate that has any probability.
        self.candidates.iter().rev().find(|c| c.prob > 0.0).unwrap_or(&self.candidates[0]).id
    }

    /// Sets each candidate's `prob` to `exp((logit - largest) / temperature)` and returns the sum.
    fn weigh(&mut self, temperature: f32) -> f32 {
        let largest = self.candidates.iter().fold(f32::NEG_INFINITY, |largest, c| largest.max(c.logit));
        self.candidates.iter_mut().fold(0.0, |total, candidate| {
            candidate.prob = exp((candidate.logit - largest) / temperature);
            // All logits -infinity: the difference is NaN, and every candidate is as likely as any.
            if candidate.prob.is_nan() {
                candidate.prob = 1.0;
            }
            total + candidate.prob
        })
    }
}

/// Id of the largest value; the lowest id among equals. NaN counts as the least.
pub fn greedy(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > logits[best] || (logits[best].is_nan() && !logit.is_nan()) {
            best = id;
        }
    }
    best as u32
}

fn likeliest(candidates: &[Candidate]) -> u32 {
    candidates.iter().min_by(|a, b| likelier_first(a, b)).map_or(0, |c| c.id)
}

fn likelier_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SamplingOptions {
        SamplingOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() }
    }

    fn drawn(options: SamplingOptions, logits: &[f32]) -> Vec<u32> {
        let mut sampler = Sampler::new(options);
        let mut ids: Vec<u32> = (0..2000).map(|_| sampler.sample(logits, &[])).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    #[test]
    fn temperature_zero_takes_the_likeliest_and_the_lower_id_of_equals() {
        let mut sampler = Sampler::new(SamplingOptions { temperature: 0.0, ..Default::default() });
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, f32::NAN], &[]), 1);
        assert_eq!(greedy(&[f32::NAN, -1.0, 3.0, 3.0]), 2);
    }

    #[test]
    fn a_seed_gives_the_same_tokens_for_ever() {
        let logits: Vec<f32> = (0..100).map(|i| (i % 7) as f32 * 0.3).collect();
        let mut sampler = Sampler::new(SamplingOptions { seed: 42, ..options() });
        let ids: Vec<u32> = (0..8).map(|_| sampler.sample(&logits, &[])).collect();
        assert_eq!(ids, [23, 68, 15, 95, 76, 42, 34, 62]);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0, (3.0f32).ln()];
        let mut sampler = Sampler::new(options());
        let ones = (0..20_000).filter(|_| sampler.sample(&logits, &[]) == 1).count();
        assert!((14_700..15_300).contains(&ones), "{ones} of 20000, expected about 15000");
    }

    #[test]
    fn each_filter_keeps_what_it_should() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let logits = [4.0f32, 2.0, 1.0, 1.0].map(f32::ln);
        assert_eq!(drawn(options(), &logits), [0, 1, 2, 3]);
        assert_eq!(drawn(SamplingOptions { top_k: 2, ..options() }, &logits), [0, 1]);
        assert_eq!(drawn(SamplingOptions { top_p: 0.8, ..options() }, &logits), [0, 1, 2]);
        assert_eq!(drawn(SamplingOptions { top_p: 0.4, ..options() }, &logits), [0]);
        assert_eq!(drawn(SamplingOptions { min_p: 0.4, ..options() }, &logits), [0, 1]);
    }

    #[test]
    fn top_p_keeps_the_same_whether_the_mass_is_in_the_first_piece_or_beyond() {
        for (n, top_p) in [(100, 0.5), (10_000, 0.01), (10_000, 0.2), (10_000, 0.9), (10_000, 0.99999)] {
            // The likeliest are not the first ones.
            let logits: Vec<f32> = (0..n).map(|i| ((i * 7919) % n) as f32 * 1e-4).collect();
            let mut sampler = Sampler::new(SamplingOptions { top_p, ..options() });
            sampler.sample(&logits, &[]);
            let mut sorted = logits.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let total: f32 = sorted.iter().map(|logit| exp(logit - sorted[0])).sum();
            let mut mass = 0.0;
            let wanted = sorted.iter().take_while(|logit| {
                let goes_on = mass < top_p * total;
                mass += exp(*logit - sorted[0]);
                goes_on
            });
            let (kept, wanted) = (sampler.candidates.len(), wanted.count());
            assert!(kept.abs_diff(wanted) <= n / 1000, "{kept} of {n} kept, {wanted} are {top_p} of the mass");
            assert!(sampler.candidates.is_sorted_by(|a, b| likelier_first(a, b).is_lt()));
        }
    }

    #[test]
    fn a_repeated_token_becomes_less_likely_once() {
        let mut sampler = Sampler::new(SamplingOptions { temperature: 0.0, repeat_penalty: 2.0, ..options() });
        assert_eq!(sampler.sample(&[3.0, 2.0], &[0, 0]), 1);
        assert_eq!(sampler.sample(&[-1.0, -1.5], &[0]), 1);
        let mut short = Sampler::new(SamplingOptions { repeat_last_n: 1, ..sampler.options.clone() });
        assert_eq!(short.sample(&[3.0, 2.0], &[0, 1]), 0);
    }

    #[test]
    fn hopeless_logits_still_give_a_token() {
        assert_eq!(Sampler::new(options()).sample(&[f32::NAN], &[]), 0);
        assert!(Sampler::new(options()).sample(&[f32::NEG_INFINITY; 3], &[]) < 3);
        assert!(Sampler::new(options()).sample(&[f32::INFINITY; 3], &[]) < 3);
    }

    #[test]
    fn an_option_out_of_range_is_named() {
        let error = SamplingOptions { top_p: 0.0, ..options() }.check().unwrap_err();
        assert_eq!(error.to_string(), "top_p is 0, but must be above 0 and at most 1");
        assert!(SamplingOptions { temperature: f32::NAN, ..options() }.check().is_err());
        assert!(SamplingOptions::default().check().is_ok());
    }
}
