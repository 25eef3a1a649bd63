//! Perplexity, beside its definition.

#[path = "../support/models.rs"]
mod models;

use clutor::generate::{logits, perplexity};
use clutor::model::Model;
use models::{load, trained_model};

const TEXT: &str = "Once upon a time there was a king who had three sons. The eldest was proud, the second was idle, and the \
    youngest was kind to every beast and bird. One day the king called them to him and said, \"Whoever brings me the \
    golden apple shall have my crown.\" So the eldest took his horse and rode away into the forest.";

fn model() -> Model {
    load(&trained_model(), clutor::kernels::best().name(), 2)
}

#[test]
fn perplexity_is_that_of_each_window_without_its_first_token() {
    let model = model();
    let ids = model.tokenizer().unwrap().encode(TEXT, false);
    let (mut sum, mut n) = (0.0, 0);
    for window in ids.chunks(20) {
        let all = logits(&model, window, 64, &|| false, &mut |_| {}).unwrap().logits;
        for (logits, next) in all.chunks_exact(model.vocab_size()).zip(&window[1..]) {
            let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
            sum += total.ln() - f64::from(logits[*next as usize]);
            n += 1;
        }
    }
    let mut seen = Vec::new();
    let whole = perplexity(&model, &ids, 20, 64, &|| false, &mut |done, _| seen.push(done)).unwrap();
    assert_eq!((whole.tokens, seen.last()), (n, Some(&ids.len())));
    assert!((whole.nll - sum / n as f64).abs() < 1e-6, "{} not {}", whole.nll, sum / n as f64);
    assert!((whole.perplexity - whole.nll.exp()).abs() < 1e-9);
    // The model was trained on such stories: far better than the 4096 of a guess.
    assert!(whole.perplexity < 60.0, "{}", whole.perplexity);
}

#[test]
fn the_batch_changes_nothing_and_what_cannot_be_measured_is_refused() {
    let model = model();
    let ids = model.tokenizer().unwrap().encode(TEXT, false);
    let of = |window, batch| perplexity(&model, &ids, window, batch, &|| false, &mut |_, _| {});
    assert_eq!(of(20, 1).unwrap(), of(20, 512).unwrap());
    assert!(of(1, 8).unwrap_err().to_string().contains("2 or more"));
    assert!(perplexity(&model, &[5], 20, 8, &|| false, &mut |_, _| {}).is_err());
    assert!(perplexity(&model, &ids, 20, 8, &|| true, &mut |_, _| {}).unwrap_err().to_string().contains("cancelled"));
}
