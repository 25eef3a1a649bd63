//! Chooses experts from router logits. It never reads.

mod smart;

pub use smart::{SmartRoute, Substitutions};

use crate::math::softmax;

/// How probabilities become weights; GGUF `<arch>.expert_weights_norm` and `expert_weights_scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutingRule {
    /// Experts chosen per token, K.
    pub n_used: usize,
    /// Divide the chosen weights by their sum (qwen3moe does, olmoe does not).
    pub normalise: bool,
    /// Factor on every weight.
    pub scale: f32,
}

/// One expert chosen for a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Expert id within its layer.
    pub expert: u32,
    /// Weight of its output.
    pub weight: f32,
}

/// Chooses the `n_used` likeliest experts of one token, in falling order; ties go to the lower id, as in llama.cpp.
///
/// `logits` is `[n_experts]`; `probs` is scratch of the same length and holds the softmax over all experts afterwards.
/// `chosen` is cleared first.
///
/// Source: Shazeer et al. 2017, arXiv 1701.06538, with softmax before the choice as Qwen3-MoE and OLMoE train it.
///
/// # Panics
/// If `rule.n_used` is larger than the number of experts, or the lengths differ.
pub fn choose(logits: &[f32], rule: RoutingRule, probs: &mut [f32], chosen: &mut Vec<Choice>) {
    assert!(rule.n_used <= logits.len());
    probs.copy_from_slice(logits);
    softmax(probs);
    likeliest(probs, rule.n_used, chosen);
    weigh(chosen, rule);
}

/// The `n` likeliest experts, in falling order of `scores`, which become their weights; ties go to the lower id.
/// `chosen` is cleared first.
///
/// # Panics
/// If `n` is larger than the number of scores.
pub fn likeliest(scores: &[f32], n: usize, chosen: &mut Vec<Choice>) {
    assert!(n <= scores.len());
    chosen.clear();
    for (expert, &score) in scores.iter().enumerate() {
        // Insertion into a short sorted list: K is 8 where X is 128. Strictly greater, so that the lower id stays ahead.
        let at = chosen.iter().position(|c: &Choice| score > c.weight).unwrap_or(chosen.len());
        if at < n {
            chosen.truncate(n - 1);
            chosen.insert(at, Choice { expert: expert as u32, weight: score });
        }
    }
}

/// Makes weights of the probabilities of the chosen experts.
fn weigh(chosen: &mut [Choice], rule: RoutingRule) {
    if rule.normalise {
        // llama.cpp keeps the sum away from zero by the least normal f16.
        let sum: f32 = chosen.iter().fold(0.0, |sum, c| sum + c.weight);
        let sum = sum.max(6.103_515_6e-5);
        chosen.iter_mut().for_each(|c| c.weight /= sum);
    }
    if rule.scale != 1.0 {
        chosen.iter_mut().for_each(|c| c.weight *= rule.scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experts(logits: &[f32], n_used: usize, normalise: bool) -> Vec<Choice> {
        let (mut probs, mut chosen) = (vec![0.0; logits.len()], Vec::new());
        choose(logits, RoutingRule { n_used, normalise, scale: 1.0 }, &mut probs, &mut chosen);
        chosen
    }

    #[test]
    fn the_likeliest_come_first_and_ties_go_to_the_lower_id() {
        let ids = |logits: &[f32], k| experts(logits, k, false).iter().map(|c| c.expert).collect::<Vec<_>>();
        assert_eq!(ids(&[0.0, 2.0, 1.0, 2.0], 3), [1, 3, 2]);
        assert_eq!(ids(&[1.0, 1.0, 1.0, 1.0], 2), [0, 1]);
        assert_eq!(ids(&[-5.0, -4.0], 2), [1, 0]);
    }

    #[test]
    fn normalised_weights_add_to_one_and_raw_ones_are_probabilities() {
        let raw: f32 = experts(&[0.0; 8], 2, false).iter().map(|c| c.weight).sum();
        let normalised: f32 = experts(&[0.0; 8], 2, true).iter().map(|c| c.weight).sum();
        assert_eq!((raw, normalised), (0.25, 1.0));
    }

    #[test]
    fn the_scale_multiplies_every_weight() {
        let (mut probs, mut chosen) = ([0.0; 2], Vec::new());
        choose(&[0.0, 0.0], RoutingRule { n_used: 1, normalise: true, scale: 2.5 }, &mut probs, &mut chosen);
        assert_eq!(chosen, [Choice { expert: 0, weight: 2.5 }]);
    }
}
