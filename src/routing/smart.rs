//! SMART-ROUTE: routing that prefers experts that are in memory.

use super::{Choice, RoutingRule, likeliest, weigh};
use crate::math::softmax;

/// How far routing may give way to what is in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmartRoute {
    /// The router's likeliest experts that always stay, J.
    pub n_kept: usize,
    /// The router's likeliest experts that a substitute may come from, M.
    pub n_candidates: usize,
    /// Most that a substitute's router logit may lie below that of the expert it replaces: the logarithm of the ratio of
    /// their probabilities. 0 changes nothing.
    pub tau: f32,
}

/// What routing gave away.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Substitutions {
    /// Choices made.
    pub slots: u64,
    /// Choices that went to a substitute.
    pub substituted: u64,
    /// Router probability of the experts replaced less that of their substitutes, summed.
    pub dropped_mass: f64,
    /// Largest difference of logits that was accepted.
    pub largest_gap: f32,
}

impl SmartRoute {
    /// As [`choose`](super::choose), but a choice after the first `n_kept` whose expert is not in memory goes to the
    /// likeliest expert that is, among the router's first `n_candidates` and none of the choices, if its logit is at
    /// most `tau` below. A substitute is weighted by its own probability.
    ///
    /// `resident` says of each expert whether it is in memory.
    ///
    /// # Panics
    /// As [`choose`](super::choose), and if `resident` has another length.
    pub fn choose(
        &self,
        logits: &[f32],
        rule: RoutingRule,
        resident: &[bool],
        probs: &mut [f32],
        chosen: &mut Vec<Choice>,
        counts: &mut Substitutions,
    ) {
        assert_eq!(logits.len(), resident.len());
        probs.copy_from_slice(logits);
        softmax(probs);
        likeliest(probs, rule.n_used, chosen);
        counts.slots += chosen.len() as u64;
        let absent = |choice: &Choice| !resident[choice.expert as usize];
        if self.tau > 0.0 && chosen.iter().skip(self.n_kept).any(absent) {
            let mut candidates = Vec::new();
            likeliest(probs, self.n_candidates.min(probs.len()), &mut candidates);
            // Those that the router chose are no substitutes: where they are in memory, they have a slot already.
            let chosen_by_router = chosen.clone();
            candidates.retain(|c| !absent(c) && chosen_by_router.iter().all(|choice| choice.expert != c.expert));
            let mut candidates = candidates.into_iter().peekable();
            for slot in self.n_kept..chosen.len() {
                if !absent(&chosen[slot]) {
                    continue;
                }
                let gap = |c: &Choice| logits[chosen[slot].expert as usize] - logits[c.expert as usize];
                // Later choices have lower logits, so a candidate that is too far below this one may serve them.
                if let Some(substitute) = candidates.next_if(|c| gap(c) <= self.tau) {
                    counts.substituted += 1;
                    counts.dropped_mass += f64::from(chosen[slot].weight - substitute.weight);
                    counts.largest_gap = counts.largest_gap.max(gap(&substitute));
                    chosen[slot] = substitute;
                }
            }
        }
        weigh(chosen, rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RoutingRule = RoutingRule { n_used: 3, normalise: true, scale: 1.0 };
    const LOGITS: [f32; 6] = [5.0, 4.0, 3.0, 2.5, 2.0, 1.0];

    fn route(smart: SmartRoute, resident: [bool; 6]) -> (Vec<u32>, Substitutions) {
        let (mut probs, mut chosen, mut counts) = ([0.0; 6], Vec::new(), Substitutions::default());
        smart.choose(&LOGITS, RULE, &resident, &mut probs, &mut chosen, &mut counts);
        let sum: f32 = chosen.iter().map(|choice| choice.weight).sum();
        assert!((sum - 1.0).abs() < 1e-6);
        (chosen.iter().map(|choice| choice.expert).collect(), counts)
    }

    #[test]
    fn an_absent_choice_goes_to_the_likeliest_expert_in_memory() {
        let smart = SmartRoute { n_kept: 1, n_candidates: 5, tau: 2.0 };
        let (ids, counts) = route(smart, [false, false, false, true, true, true]);
        assert_eq!(ids, [0, 3, 4]);
        assert_eq!((counts.slots, counts.substituted, counts.largest_gap), (3, 2, 1.5));
        assert!(counts.dropped_mass > 0.0);
    }

    #[test]
    fn what_is_in_memory_or_kept_stays() {
        let smart = SmartRoute { n_kept: 1, n_candidates: 6, tau: 9.0 };
        assert_eq!(route(smart, [false, true, true, true, true, true]).0, [0, 1, 2]);
        assert_eq!(route(SmartRoute { n_kept: 3, ..smart }, [false; 6]).0, [0, 1, 2]);
    }

    #[test]
    fn a_substitute_is_no_further_below_than_tau_and_among_the_candidates() {
        let smart = SmartRoute { n_kept: 0, n_candidates: 6, tau: 0.6 };
        assert_eq!(route(smart, [false, false, false, true, false, false]).0, [0, 1, 3]);
        assert_eq!(route(smart, [false, false, false, false, true, true]).0, [0, 1, 2]);
        let few = SmartRoute { n_candidates: 4, tau: 9.0, ..smart };
        assert_eq!(route(few, [false, false, false, false, true, true]).0, [0, 1, 2]);
    }

    #[test]
    fn tau_of_zero_is_the_router_itself() {
        let smart = SmartRoute { n_kept: 0, n_candidates: 6, tau: 0.0 };
        let (mut probs, mut plain) = ([0.0; 6], Vec::new());
        super::super::choose(&[1.0; 6], RULE, &mut probs, &mut plain);
        let (mut chosen, mut counts) = (Vec::new(), Substitutions::default());
        smart.choose(&[1.0; 6], RULE, &[false, false, false, true, true, true], &mut probs, &mut chosen, &mut counts);
        assert_eq!((chosen, counts.substituted), (plain, 0));
    }
}
