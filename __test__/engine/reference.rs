//! The engine beside the plain float64 forward pass of `__test__/reference`, whose answers are recorded in
//! `reference_logits.npy`. Run with `--nocapture` to see the table.

#[path = "../support/copy.rs"]
mod copy;
#[path = "../support/gguf_writer.rs"]
mod gguf_writer;
#[path = "../support/models.rs"]
mod models;
#[path = "../support/npy.rs"]
mod npy;
#[path = "../support/recorded.rs"]
mod recorded;

use copy::{as_f32, copy_of};
use models::{golden_folders, kernel_paths, load, name};
use recorded::{divergences, largest_difference, mean, record, tokens};

#[test]
fn with_f32_weights_the_logits_are_those_of_the_formulas() {
    let folder = tempfile::tempdir().unwrap();
    for (i, from) in golden_folders().into_iter().filter(|folder| name(folder).ends_with("-base")).enumerate() {
        let file = folder.path().join(format!("{i}.gguf"));
        as_f32(copy_of(&from.join("model.gguf"))).write(&file);
        let theirs = npy::read_f32(&from.join("reference_logits.npy"));
        for path in kernel_paths() {
            let ours = record(&load(&file, path, 1), &tokens(&from)).logits;
            let difference = largest_difference(&theirs, &ours);
            println!("{:16} {path:12} largest difference {difference:.1e}", name(&from));
            assert!(difference < 1e-4, "{} on {path}: a logit is off by {difference}", name(&from));
        }
    }
}

/// Rounding activations to 8 bits moves the logits, and where it moves a near tie of the router, a whole position: the
/// median says whether the formulas are right.
#[test]
fn with_quantized_weights_the_logits_differ_by_what_8_bit_activations_cost() {
    println!("{:16} {:>9} {:>9} {:>9}", "model", "mean KL", "median KL", "max diff");
    for folder in golden_folders() {
        let theirs = npy::read_f32(&folder.join("reference_logits.npy"));
        let model = load(&folder.join("model.gguf"), "scalar", 1);
        let ours = record(&model, &tokens(&folder)).logits;
        let mut all = divergences(&theirs, &ours, model.vocab_size());
        all.sort_by(f64::total_cmp);
        let (mean, median) = (mean(&all), all[all.len() / 2]);
        println!("{:16} {mean:9.1e} {median:9.1e} {:9.1e}", name(&folder), largest_difference(&theirs, &ours));
        assert!(median < 1e-3, "{}: median KL divergence {median:e}", name(&folder));
    }
}
