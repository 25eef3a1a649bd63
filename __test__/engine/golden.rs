//! The engine beside llama.cpp's recorded answers, on every kernel path; the cache is f32, as in the recordings. Run with
//! `--nocapture` to see the table.

#[path = "../support/models.rs"]
mod models;
#[path = "../support/npy.rs"]
mod npy;
#[path = "../support/recorded.rs"]
mod recorded;

use clutor::model::CacheType;
use models::{golden_folders, kernel_paths, load, load_with, name, trained_answers, trained_model};
use recorded::{divergences, expert_sets, greedy_gaps, mean, record, tokens};
use std::path::PathBuf;

#[test]
fn logits_tokens_and_routing_are_those_of_llama_cpp_for_every_type() {
    println!("{:24} {:12} {:>9} {:>9} {:>6} {:>8}", "model", "kernels", "mean KL", "max KL", "flips", "routing");
    let (mut pairs, mut same_pairs) = (0, 0);
    let models = golden_folders().into_iter().map(|folder| (folder.join("model.gguf"), folder));
    let models: Vec<(PathBuf, PathBuf)> = models.chain([(trained_model(), trained_answers())]).collect();
    for (file, folder) in models {
        let (ids, theirs) = (tokens(&folder), npy::read_f32(&folder.join("logits.npy")));
        for path in kernel_paths() {
            let model = load(&file, path, 1);
            let (ours, vocab_size) = (record(&model, &ids), model.vocab_size());
            let all = divergences(&theirs, &ours.logits, vocab_size);
            let (mean, max) = (mean(&all), all.iter().copied().fold(0.0, f64::max));
            let gaps = greedy_gaps(&theirs, &ours.logits, vocab_size);
            let n_used = model.config().routing.n_used;
            let recorded = expert_sets(&npy::read_i32(&folder.join("topk.npy")), n_used);
            let same = recorded.iter().zip(expert_sets(&ours.topk, n_used)).filter(|(a, b)| *a == b).count();
            (pairs, same_pairs) = (pairs + recorded.len(), same_pairs + same);
            let (name, n_pairs) = (name(&folder), recorded.len());
            println!("{name:24} {path:12} {mean:9.1e} {max:9.1e} {:>6} {same:>4}/{n_pairs}", gaps.len());
            assert!(mean < 1e-5, "{name}: mean KL divergence {mean:e}");
            assert!(gaps.is_empty(), "{name}: greedy tokens differ, with logits apart by {gaps:?}");
        }
    }
    assert!(same_pairs as f64 >= 0.999 * pairs as f64, "{same_pairs} of {pairs} expert sets agree");
}

#[test]
fn smaller_caches_of_keys_and_values_stay_close_to_llama_cpp_with_f32() {
    let folder = trained_answers();
    let (ids, theirs) = (tokens(&folder), npy::read_f32(&folder.join("logits.npy")));
    // A model this small turns the rounding of keys into other roundings of activations: twice what was measured.
    for (cache_type, bound) in [(CacheType::F16, 5.5e-4), (CacheType::Q8_0, 1.3e-3)] {
        let model = load_with(&trained_model(), clutor::kernels::best().name(), 1, cache_type);
        let ours = record(&model, &ids);
        let mean = mean(&divergences(&theirs, &ours.logits, model.vocab_size()));
        println!("{cache_type:?}: mean KL {mean:.1e}");
        assert!(mean < bound, "{cache_type:?}: mean KL divergence {mean:e}");
    }
}
