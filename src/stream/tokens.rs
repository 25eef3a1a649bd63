//! A trace token by token, as they go through a model.

use crate::store::policy::Trace;
use std::ops::Range;

/// What the tokens of a trace choose.
pub(super) struct Tokens {
    n_experts: usize,
    keys: Vec<u32>,
    steps: Vec<Step>,
    /// The steps of each token.
    tokens: Vec<Range<usize>>,
}

/// What a token chooses in one layer: a range of the keys.
struct Step {
    layer: usize,
    keys: Range<usize>,
}

impl Tokens {
    /// The first `n_tokens` tokens of `trace`, or all. A prompt that was recorded layer by layer is taken token by token.
    pub fn of(trace: Trace, n_tokens: Option<usize>) -> Self {
        let n_experts = trace.n_experts.max(1);
        let starts = std::iter::once(0).chain(trace.visits.iter().map(|visit| visit.end));
        let mut visits: Vec<(u32, Step)> = starts
            .zip(&trace.visits)
            .filter(|(start, visit)| *start < visit.end)
            .map(|(start, visit)| {
                let layer = trace.keys[start] as usize / n_experts;
                (visit.token, Step { layer, keys: start..visit.end })
            })
            .collect();
        let n_prompt = visits.iter().take_while(|(_, step)| step.keys.start < trace.n_prompt_keys).count();
        visits[..n_prompt].sort_by_key(|(token, _)| *token);

        let mut tokens: Vec<Range<usize>> = Vec::new();
        for (i, pair) in visits.iter().enumerate() {
            let goes_on = i > 0 && visits[i - 1].0 == pair.0 && visits[i - 1].1.layer < pair.1.layer;
            match tokens.last_mut() {
                Some(token) if goes_on => token.end = i + 1,
                _ => tokens.push(i..i + 1),
            }
        }
        tokens.truncate(n_tokens.unwrap_or(usize::MAX));
        Self { n_experts, keys: trace.keys, steps: visits.into_iter().map(|(_, step)| step).collect(), tokens }
    }

    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    pub fn n_experts(&self) -> usize {
        self.n_experts
    }

    /// Experts that a token chooses in a layer, each named once; none where the trace leaves the layer out.
    pub fn experts(&self, token: usize, layer: usize) -> Vec<u32> {
        let steps = &self.steps[self.tokens[token].clone()];
        let Ok(at) = steps.binary_search_by_key(&layer, |step| step.layer) else { return Vec::new() };
        let mut experts = Vec::with_capacity(steps[at].keys.len());
        for key in &self.keys[steps[at].keys.clone()] {
            let expert = key % self.n_experts as u32;
            if !experts.contains(&expert) {
                experts.push(expert);
            }
        }
        experts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::policy::Visit;

    /// A trace of one expert a visit: (token, layer, expert), of which the first so many are the prompt's.
    fn tokens(visits: &[(u32, u32, u32)], n_prompt: usize, n_tokens: Option<usize>) -> Vec<Vec<Vec<u32>>> {
        let trace = Trace {
            n_layers: 2,
            n_experts: 4,
            keys: visits.iter().map(|(_, layer, expert)| layer * 4 + expert).collect(),
            visits: visits.iter().zip(1..).map(|((token, ..), end)| Visit { token: *token, end }).collect(),
            n_prompt_keys: n_prompt,
        };
        let tokens = Tokens::of(trace, n_tokens);
        (0..tokens.n_tokens()).map(|token| (0..2).map(|layer| tokens.experts(token, layer)).collect()).collect()
    }

    #[test]
    fn a_prompt_recorded_layer_by_layer_is_taken_token_by_token() {
        let by_layer = [(0, 0, 1), (1, 0, 2), (0, 1, 3), (1, 1, 0), (2, 0, 1), (2, 1, 1)];
        let by_token = [(0, 0, 1), (0, 1, 3), (1, 0, 2), (1, 1, 0), (2, 0, 1), (2, 1, 1)];
        assert_eq!(tokens(&by_layer, 4, None), tokens(&by_token, 4, None));
        assert_eq!(tokens(&by_token, 4, None), [[[1], [3]], [[2], [0]], [[1], [1]]]);
        assert_eq!(tokens(&by_token, 4, Some(1)).len(), 1);
    }

    #[test]
    fn layers_that_are_left_out_choose_nothing_and_a_token_that_comes_again_is_another() {
        assert_eq!(
            tokens(&[(0, 1, 2), (0, 0, 1), (0, 1, 1)], 0, None),
            [vec![vec![], vec![2]], vec![vec![1], vec![1]]]
        );
    }
}
