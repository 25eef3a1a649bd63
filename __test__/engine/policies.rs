//! Cache policies on what real models chose: the default is judged here, not by taste.

#[path = "../support/traces.rs"]
mod traces;

use clutor::store::policy::{PolicyKind, belady, replay};
use clutor::workload::{RoutingShape, SyntheticRouting, simulate};
use traces::{read_trace, recorded_traces, slots};

const PER_CENT: [usize; 4] = [5, 10, 20, 30];

#[test]
fn the_default_is_never_more_than_a_point_below_the_best() {
    for path in recorded_traces() {
        let trace = read_trace(&path);
        for per_cent in PER_CENT {
            let rate = |kind| 100.0 * replay(&trace, kind, slots(&trace, per_cent)).rate();
            let default = rate(PolicyKind::default());
            for kind in PolicyKind::ALL {
                let other = rate(kind);
                assert!(
                    default > other - 1.0,
                    "{} at {per_cent} %: {default} against {other} of {kind}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn the_default_closes_a_third_of_the_gap_between_lru_and_belady_at_a_tenth() {
    for path in recorded_traces() {
        let trace = read_trace(&path);
        let n_slots = slots(&trace, 10);
        let lru = replay(&trace, PolicyKind::Lru, n_slots).rate();
        let default = replay(&trace, PolicyKind::default(), n_slots).rate();
        let best = belady(&trace, n_slots).rate();
        assert!(default - lru >= (best - lru) / 3.0, "{}: {lru} {default} {best}", path.display());
    }
}

#[test]
fn no_policy_beats_belady_nor_does_more_room_hurt_it() {
    for path in recorded_traces() {
        let trace = read_trace(&path);
        let mut before = 0;
        for per_cent in [0, 1, 5, 10, 20, 30, 60, 100] {
            let n_slots = slots(&trace, per_cent);
            let best = belady(&trace, n_slots);
            let all_hits = best.hits + best.prompt_hits;
            assert!(all_hits >= before);
            before = all_hits;
            for kind in PolicyKind::ALL {
                let found = replay(&trace, kind, n_slots);
                assert_eq!((found.accesses, found.prompt_accesses), (best.accesses, best.prompt_accesses));
                assert!(found.hits + found.prompt_hits <= all_hits, "{kind} at {per_cent} % of {}", path.display());
            }
        }
    }
}

#[test]
fn replays_agree_with_those_of_another_program() {
    // Figures that came with the trace, from a replay written independently; they were rounded to a tenth of a point.
    let trace = read_trace(&recorded_traces()[1]);
    let cases =
        [(5, 58.5, 37.7), (10, 75.6, 50.0), (15, 84.4, 65.4), (20, 90.0, 74.1), (30, 95.5, 88.0), (40, 97.1, 93.9)];
    for (per_cent, best, lru) in cases {
        let n_slots = slots(&trace, per_cent);
        assert!((100.0 * belady(&trace, n_slots).rate() - best).abs() < 0.15, "Belady at {per_cent} %");
        assert!((100.0 * replay(&trace, PolicyKind::Lru, n_slots).rate() - lru).abs() < 0.15, "LRU at {per_cent} %");
    }
}

#[test]
fn a_simulation_of_a_trace_file_finds_what_the_replays_do() {
    for path in recorded_traces() {
        let trace = read_trace(&path);
        let shares = PER_CENT.map(|per_cent| per_cent as f64 / 100.0);
        let found = simulate(&path, &PolicyKind::ALL, &shares, &|| false).unwrap();
        assert_eq!(found.info.n_choices, trace.keys.len());
        for (cache, per_cent) in found.caches.iter().zip(PER_CENT) {
            let n_slots = slots(&trace, per_cent);
            assert_eq!((cache.n_slots, cache.belady), (n_slots, belady(&trace, n_slots)));
            for (policy, kind) in cache.policies.iter().zip(PolicyKind::ALL) {
                assert_eq!((policy.policy, policy.rates), (kind, replay(&trace, kind, n_slots)));
                assert!(policy.accesses_per_second > 0.0);
            }
        }
    }
}

#[test]
fn a_cache_below_one_tokens_demand_still_hits_with_the_default_where_lru_hits_nothing() {
    for path in recorded_traces() {
        let trace = read_trace(&path);
        // A token chooses 6 experts in each layer; this is half of that.
        let n_slots = 3 * trace.n_layers;
        assert!(replay(&trace, PolicyKind::Lru, n_slots).rate() < 0.001, "{}", path.display());
        let default = replay(&trace, PolicyKind::default(), n_slots).rate();
        assert!(default > 0.5 * belady(&trace, n_slots).rate(), "{}: {default}", path.display());
    }
}

#[test]
fn synthetic_routing_resembles_what_a_model_chose() {
    let path = recorded_traces().into_iter().find(|path| path.to_string_lossy().contains("qwen3")).unwrap();
    let real = clutor::store::policy::Trace { n_prompt_keys: 0, ..read_trace(&path) };
    let shape = RoutingShape { n_layers: real.n_layers, n_experts: real.n_experts, n_used: 6 };
    let n_tokens = real.visits.len() / real.n_layers;
    let synthetic = SyntheticRouting::default().trace(shape, n_tokens);
    for per_cent in [5, 10, 20, 30, 50] {
        let rate = |trace| 100.0 * replay(trace, PolicyKind::default(), slots(&real, per_cent)).rate();
        let (found, expected) = (rate(&synthetic), rate(&real));
        assert!((found - expected).abs() < 4.0, "{found} against {expected} at {per_cent} %");
    }
}
