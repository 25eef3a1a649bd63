//! Speed of the tokenizer: `cargo bench --bench tokenizer [-- <part of a vocabulary's or a text's name>]`.
//!
//! One thread, megabytes of text per second, best of many runs. The target is 10 MB/s for text, and about as much for the
//! worst of runs. A text that was repeated to a megabyte has its pieces from the cache of pieces; what is new each time
//! has not.

#[path = "../support/vocabularies.rs"]
mod vocabularies;

use clutor::tokenizer::Tokenizer;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use vocabularies::{VOCABULARIES, cases, tables_of, text_of, tokenizer_from};

const MEGABYTE: usize = 1_000_000;

fn main() {
    // `cargo bench` passes `--bench`; what else is given selects.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    println!("{:<10} {:<28} {:>10} {:>10} {:>10}", "vocabulary", "text", "bytes", "tokens", "MB/s");
    for name in VOCABULARIES {
        let Some(tables) = tables_of(name) else { continue };
        let tokenizer = tokenizer_from(&tables);
        for (what, text) in texts(&tokenizer) {
            if !wanted.is_empty() && !wanted.iter().any(|wanted| format!("{name} {what}").contains(wanted.as_str())) {
                continue;
            }
            let n_tokens = tokenizer.encode(&text, false).len();
            let speed = text.len() as f64 / best_seconds(|| _ = black_box(tokenizer.encode(black_box(&text), false)));
            println!("{name:<10} {what:<28} {:>10} {n_tokens:>10} {:>10.1}", text.len(), speed / 1e6);
        }
    }
}

fn texts(tokenizer: &Tokenizer) -> [(&'static str, String); 6] {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("__test__/data/text/held-out.txt");
    let english = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    // Short texts in many scripts; runs of one character are a measurement of their own.
    let mixed: String = cases("tokenizer_cases.jsonl")
        .iter()
        .filter(|case| case["text"].is_string())
        .map(|case| String::from_utf8_lossy(&text_of(case)).into_owned() + "\n")
        .collect();
    let long = |text: &str| text.repeat(MEGABYTE.div_ceil(text.len()));
    [
        ("english, once", english.clone()),
        ("english, repeated", long(&english)),
        ("mixed scripts, once", mixed.clone()),
        ("mixed scripts, repeated", long(&mixed)),
        ("random tokens", random_text(tokenizer)),
        ("one letter", "a".repeat(MEGABYTE)),
    ]
}

/// Texts of tokens without order: words of all scripts and code that hardly ever come twice.
fn random_text(tokenizer: &Tokenizer) -> String {
    let (mut text, mut state) = (String::new(), 1u64);
    while text.len() < MEGABYTE {
        // Knuth's multiplier and increment; the upper bits are the random ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = ((state >> 33) % tokenizer.vocab_size() as u64) as u32;
        if let Ok(token) = std::str::from_utf8(tokenizer.text_bytes(id, false)) {
            text.push_str(token);
        }
    }
    text
}

/// Seconds of one call: the best of many, so that other processes disturb few of them.
fn best_seconds(mut call: impl FnMut()) -> f64 {
    let (began, mut best) = (Instant::now(), f64::INFINITY);
    while began.elapsed().as_secs_f64() < 1.0 {
        let started = Instant::now();
        call();
        best = best.min(started.elapsed().as_secs_f64());
    }
    best
}
