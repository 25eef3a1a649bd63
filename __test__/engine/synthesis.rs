//! The writer of models with random weights: what it writes is the same every time, loads, and routes as asked.

#[path = "../support/models.rs"]
mod models;

use clutor::generate::{GenerateError, Outcome, Piece, Progress};
use clutor::generate::{GenerateOptions, Recording, Scheduler, Sink, logits};
use clutor::model::Model;
use clutor::sampling::SamplingOptions;
use models::load;
use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

fn synthesize(folder: &Path, line: &str) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_synthesize")).args(line.split(' ')).current_dir(folder).output();
    command.expect("the command was built with this test")
}

/// Runs the command, which must succeed, and gives the file that it wrote.
fn written(folder: &Path, line: &str) -> Vec<u8> {
    let output = synthesize(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(folder.join(line.split(' ').nth(1).unwrap())).unwrap()
}

fn model(folder: &Path, line: &str) -> Arc<Model> {
    written(folder, line);
    Arc::new(load(&folder.join(line.split(' ').nth(1).unwrap()), clutor::kernels::best().name(), 2))
}

/// Collects the ids of an answer.
struct Ids(Arc<Mutex<Vec<u32>>>);

impl Sink for Ids {
    fn has_room(&self) -> bool {
        true
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn piece(&mut self, piece: Piece) {
        self.0.lock().unwrap().push(piece.id);
    }

    fn finish(self: Box<Self>, outcome: Result<Outcome, GenerateError>) {
        outcome.unwrap();
    }
}

/// What the model says about a text of `n` tokens that it made itself, drawn from all of the vocabulary.
fn own_text(model: &Arc<Model>, n: usize) -> Recording {
    let sampling = SamplingOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() };
    let options = GenerateOptions { max_tokens: n, sampling, stop: Vec::new(), ignore_eos: true, trace: None };
    let ids = Arc::new(Mutex::new(Vec::new()));
    let mut scheduler = Scheduler::new(Arc::clone(model));
    scheduler.submit(vec![300], options, Box::new(Ids(Arc::clone(&ids))));
    while scheduler.step() == Progress::Worked {}
    let ids = ids.lock().unwrap();
    assert_eq!(ids.len(), n);
    logits(model, &ids, 64, &|| false, &mut |_| {}).unwrap()
}

/// Means over all layers of a routing: the share of choices that fall on the hottest quarter of the experts, and the
/// share of a token's experts that the token before used too.
fn routing(model: &Model, text: &Recording) -> (f64, f64) {
    let config = model.config();
    let (n_layers, n_used) = (config.n_layers, config.routing.n_used);
    let chosen = |token: usize, layer: usize| &text.topk[(token * n_layers + layer) * n_used..][..n_used];
    let (mut hot, mut again) = (0, 0);
    for layer in 0..n_layers {
        let mut counts = vec![0; config.n_experts];
        for token in 0..text.n_tokens {
            chosen(token, layer).iter().for_each(|expert| counts[*expert as usize] += 1);
            if token > 0 {
                let before: HashSet<&i32> = chosen(token - 1, layer).iter().collect();
                again += chosen(token, layer).iter().filter(|expert| before.contains(expert)).count();
            }
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        hot += counts[..config.n_experts / 4].iter().sum::<usize>();
    }
    let per_token = (n_layers * n_used) as f64;
    (hot as f64 / per_token / text.n_tokens as f64, again as f64 / per_token / (text.n_tokens - 1) as f64)
}

#[test]
fn a_file_is_a_function_of_its_options_and_one_tensor_can_be_written_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(folder.path(), "tiny-olmoe a.gguf --layers 2 --threads 1");
    assert_eq!(file, written(folder.path(), "tiny-olmoe b.gguf --layers 2 --threads 3"));
    assert_ne!(file, written(folder.path(), "tiny-olmoe c.gguf --layers 2 --seed 2"));

    let gguf = clutor::gguf::Gguf::open(&folder.path().join("a.gguf")).unwrap();
    let tensor = gguf.tensor("blk.0.ffn_up_exps.weight").unwrap();
    let range = tensor.offset as usize..(tensor.offset + tensor.bytes) as usize;
    let mut damaged = file.clone();
    damaged[range.clone()].fill(0);
    damaged[range.end] ^= 1; // Not of this tensor.
    std::fs::write(folder.path().join("a.gguf"), &damaged).unwrap();
    let repaired = written(folder.path(), "tiny-olmoe a.gguf --layers 2 --only blk.0.ffn_up");
    damaged[range.clone()].copy_from_slice(&file[range]);
    assert!(repaired == damaged, "only that tensor was written");
}

#[test]
fn what_would_be_lost_or_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "tiny-olmoe a.gguf --layers 1");
    let cases = [
        ("tiny-olmoe a.gguf --layers 1", 1, "a.gguf exists; use --force"),
        ("tiny-olmoe a.gguf --layers 2 --only output", 1, "not the file that these options make"),
        ("tiny-olmoe a.gguf --layers 1 --only nothing", 1, "no tensor's name contains `nothing`"),
        ("tiny-olmoe b.gguf --layers 1000000 --experts 10000 --threads 1", 1, "MiB free"),
        ("tiny-olmoe none/b.gguf", 1, "cannot create none/b.gguf"),
        ("tiny-olmoe", 2, "missing"),
    ];
    for (line, code, part) in cases {
        let output = synthesize(folder.path(), line);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), message.contains(part)), (Some(code), true), "{line}: {message}");
    }
    assert!(!folder.path().join("b.gguf").exists());
    written(folder.path(), "tiny-olmoe a.gguf --layers 2 --force");
}

#[test]
fn every_type_loads_and_gives_logits_of_a_sane_spread() {
    let folder = tempfile::tempdir().unwrap();
    for ty in [
        "Q4_K_M", "Q5_K_M", "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
        "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S", "MXFP4",
    ] {
        for preset in ["tiny-qwen3moe", "tiny-olmoe"] {
            let model = model(
                folder.path(),
                &format!("{preset} m.gguf --force --layers 2 --experts 8 --vocab 600 --type {ty}"),
            );
            let ids: Vec<u32> = (300..340).collect();
            let text = logits(&model, &ids, 64, &|| false, &mut |_| {}).unwrap();
            let square = |x: &f32| f64::from(*x) * f64::from(*x);
            let spread = (text.logits.iter().map(square).sum::<f64>() / text.logits.len() as f64).sqrt();
            // 2 from the noise and some from the bonus of the topic; NaN and infinities fail as well.
            assert!((1.7..2.8).contains(&spread), "{preset} {ty}: {spread}");
        }
    }
}

#[test]
fn text_can_be_read_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), "tiny-qwen3moe m.gguf --layers 1");
    let tokenizer = model.tokenizer().unwrap();
    let text = "A prompt, 12 words & ünïcode 字.<|im_end|>";
    let ids = tokenizer.encode(text, true);
    assert_eq!(tokenizer.decode_text(&ids, true), text);
    assert!(tokenizer.is_end(*ids.last().unwrap()));
    assert!(ids.len() < text.len() - "<|im_end|>".len(), "some syllables are tokens");
}

#[test]
fn routing_is_skewed_and_local_unless_it_is_uniform() {
    let folder = tempfile::tempdir().unwrap();
    let skewed = model(folder.path(), "tiny-qwen3moe skewed.gguf");
    let uniform = model(folder.path(), "tiny-qwen3moe uniform.gguf --uniform");
    let (skewed, uniform) = (routing(&skewed, &own_text(&skewed, 300)), routing(&uniform, &own_text(&uniform, 300)));
    // Of 32 experts with 4 used, an even choice puts 25 % on any quarter and repeats one in eight.
    assert!(skewed.0 > 0.5 && skewed.1 > 0.25, "skewed {skewed:?}");
    assert!(uniform.0 < 0.4 && uniform.1 < 0.2, "uniform {uniform:?}");
}
