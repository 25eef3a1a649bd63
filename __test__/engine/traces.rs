//! Traces that generations record, against what the model says about the same tokens.

#[path = "../support/models.rs"]
mod models;

use clutor::generate::{GenerateError, GenerateOptions, Outcome, Piece, Progress, Scheduler, Sink, logits};
use clutor::model::{LoadOptions, Model};
use clutor::routing::SmartRoute;
use clutor::sampling::SamplingOptions;
use clutor::workload::read_trace;
use clutor::workload::trace::{Header, LogitsReader, convert_to_csv, inspect_trace};
use models::{load, trained_model};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Answer {
    ids: Vec<u32>,
    outcome: Option<Result<Outcome, String>>,
}

struct TestSink(Arc<Mutex<Answer>>);

impl Sink for TestSink {
    fn has_room(&self) -> bool {
        true
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn piece(&mut self, piece: Piece) {
        self.0.lock().unwrap().ids.push(piece.id);
    }

    fn finish(self: Box<Self>, outcome: Result<Outcome, GenerateError>) {
        self.0.lock().unwrap().outcome = Some(outcome.map_err(|error| error.to_string()));
    }
}

fn model() -> Arc<Model> {
    Arc::new(load(&trained_model(), clutor::kernels::best().name(), 2))
}

fn submit(scheduler: &mut Scheduler, prompt: &[u32], n: usize, trace: Option<&Path>) -> Arc<Mutex<Answer>> {
    let sampling = SamplingOptions { temperature: 0.0, ..SamplingOptions::default() };
    let trace = trace.map(PathBuf::from);
    let options = GenerateOptions { max_tokens: n, sampling, stop: Vec::new(), ignore_eos: true, trace };
    let answer = Arc::default();
    scheduler.submit(prompt.to_vec(), options, Box::new(TestSink(Arc::clone(&answer))));
    answer
}

fn run(scheduler: &mut Scheduler) {
    while scheduler.step() == Progress::Worked {}
}

/// The answer to `prompt`, recorded in `trace`.
fn record(model: &Arc<Model>, prompt: &[u32], n: usize, trace: &Path) -> Vec<u32> {
    let mut scheduler = Scheduler::new(Arc::clone(model));
    let answer = submit(&mut scheduler, prompt, n, Some(trace));
    run(&mut scheduler);
    let answer = answer.lock().unwrap();
    answer.outcome.clone().unwrap().unwrap();
    answer.ids.clone()
}

fn prompt(model: &Model, text: &str) -> Vec<u32> {
    model.tokenizer().unwrap().encode(text, false)
}

/// Tokens that the model read: all but the last, after which nothing came.
fn read_by_model(prompt: &[u32], answer: &[u32]) -> Vec<u32> {
    [prompt, &answer[..answer.len() - 1]].concat()
}

/// Header, ids and router logits of a binary trace.
fn contents(path: &Path) -> (Header, Vec<u32>, Vec<f32>) {
    let mut reader = LogitsReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let (mut ids, mut all) = (Vec::new(), Vec::new());
    while let Some((id, logits)) = reader.next().unwrap() {
        ids.push(id);
        all.extend_from_slice(logits);
    }
    assert_eq!(reader.left_over(), 0);
    (*reader.header(), ids, all)
}

const FOX: &str = "Once upon a time there was a little fox";

#[test]
fn a_binary_trace_has_the_router_logits_of_every_token_to_the_bit() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let (path, prompt) = (folder.path().join("fox.trace"), prompt(&model, FOX));
    let answer = record(&model, &prompt, 12, &path);
    let (header, ids, router_logits) = contents(&path);
    let config = model.config();
    assert_eq!((header.n_layers, header.n_experts), (config.n_layers, config.n_experts));
    assert_eq!((header.rule, header.n_prompt), (config.routing, prompt.len()));
    assert_eq!(ids, read_by_model(&prompt, &answer));
    assert_eq!(router_logits, logits(&model, &ids, 512, &|| false, &mut |_| {}).unwrap().router_logits);
    let info = inspect_trace(&path, &|| false).unwrap();
    assert_eq!((info.prompt_tokens, info.tokens, info.left_over_bytes), (prompt.len(), 11, 0));
}

#[test]
fn a_csv_trace_has_the_choices_and_weights_and_is_what_converting_gives() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let [csv, binary, converted] = ["fox.CSV", "fox.bin", "fox.csv"].map(|name| folder.path().join(name));
    let prompt = prompt(&model, FOX);
    let answer = record(&model, &prompt, 12, &csv);
    record(&model, &prompt, 12, &binary);
    let ids = read_by_model(&prompt, &answer);
    assert_eq!(convert_to_csv(&binary, &converted, &|| false).unwrap(), ids.len());
    let text = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(text, std::fs::read_to_string(&converted).unwrap());

    let recorded = logits(&model, &ids, 512, &|| false, &mut |_| {}).unwrap();
    let (n_layers, n_used) = (model.config().n_layers, model.config().routing.n_used);
    let mut rows = text.lines().skip(2);
    for (i, (expert, weight)) in recorded.topk.iter().zip(&recorded.weights).enumerate() {
        let row = rows.next().unwrap();
        let (token, layer, rank) = (i / (n_layers * n_used), i / n_used % n_layers, i % n_used);
        assert_eq!(row, format!("{token},{layer},{rank},{expert},{weight}"));
        assert_eq!(row.rsplit(',').next().unwrap().parse::<f32>().unwrap(), *weight);
    }
    assert_eq!(rows.next(), None);
    assert_eq!(read_trace(&csv).unwrap(), read_trace(&binary).unwrap());
}

#[test]
fn generations_that_share_passes_have_their_own_tokens_in_their_traces() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let texts = [FOX, "The", "There was a king who had three sons, and"];
    let alone = |i: usize| folder.path().join(format!("alone-{i}"));
    let together = |i: usize| folder.path().join(format!("together-{i}"));
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    for (i, text) in texts.iter().enumerate() {
        record(&model, &prompt(&model, text), 8 + i, &alone(i));
        submit(&mut scheduler, &prompt(&model, text), 8 + i, Some(&together(i)));
        // One without a trace in between.
        submit(&mut scheduler, &prompt(&model, FOX), 5, None);
    }
    run(&mut scheduler);
    for i in 0..texts.len() {
        assert_eq!(std::fs::read(alone(i)).unwrap(), std::fs::read(together(i)).unwrap(), "{i}");
    }
}

#[test]
fn a_prompt_that_a_cache_holds_is_run_again_and_the_file_is_written_anew() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let (path, prompt) = (folder.path().join("fox.trace"), prompt(&model, FOX));
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let mut bytes = Vec::new();
    for n in [9, 6] {
        let answer = submit(&mut scheduler, &prompt, n, Some(&path));
        run(&mut scheduler);
        assert_eq!(answer.lock().unwrap().outcome.clone().unwrap().unwrap().reused_tokens, 0);
        bytes.push(std::fs::read(&path).unwrap());
    }
    assert!(bytes[0].starts_with(&bytes[1]) && bytes[0].len() > bytes[1].len());
}

#[test]
fn with_smart_route_a_csv_has_what_was_applied_and_a_binary_trace_what_the_router_said() {
    let smart = Some(SmartRoute { n_kept: 1, n_candidates: 8, tau: 3.0 });
    let options = LoadOptions { n_threads: Some(2), smart, cache_bytes: Some(1 << 20), ..LoadOptions::default() };
    let model = Arc::new(Model::load(&trained_model(), &options, &mut |_| ControlFlow::Continue(())).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let [csv, binary] = ["a.csv", "a.trace"].map(|name| folder.path().join(name));
    // The same text twice in the same passes, where the same experts are in memory.
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    for path in [&csv, &binary] {
        submit(&mut scheduler, &prompt(&model, FOX), 20, Some(path));
    }
    run(&mut scheduler);
    let (applied, routed) = (read_trace(&csv).unwrap(), read_trace(&binary).unwrap());
    assert_eq!(applied.visits, routed.visits);
    let differ = applied.keys.iter().zip(&routed.keys).filter(|(applied, routed)| applied != routed).count() as u64;
    assert!(differ > 0);
    assert_eq!(2 * differ, model.substitutions().unwrap().substituted);
}

#[test]
fn a_file_that_cannot_be_made_fails_its_generation_at_once() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let path = folder.path().join("absent/fox.trace");
    let failed = submit(&mut scheduler, &prompt(&model, FOX), 3, Some(&path));
    assert_eq!(scheduler.n_active(), 0);
    let message = failed.lock().unwrap().outcome.clone().unwrap().unwrap_err();
    assert!(message.starts_with(&format!("{}: the trace cannot be written: ", path.display())), "{message}");
    let path = folder.path().join("fox.trace");
    let first = submit(&mut scheduler, &prompt(&model, FOX), 3, Some(&path));
    let other_spelling = folder.path().join("../").join(folder.path().file_name().unwrap()).join("./fox.trace");
    for path in [&path, &other_spelling] {
        let second = submit(&mut scheduler, &prompt(&model, FOX), 3, Some(path));
        let message = second.lock().unwrap().outcome.clone().unwrap().unwrap_err();
        assert!(
            message.ends_with("another generation is writing its trace to this file; give each its own"),
            "{message}"
        );
    }
    run(&mut scheduler);
    assert!(first.lock().unwrap().outcome.clone().unwrap().is_ok());
}

#[cfg(target_os = "linux")]
#[test]
fn a_write_that_fails_ends_that_generation_and_no_other() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::io::Read;
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::File::open(path).unwrap().read_exact(&mut [0; 40]).unwrap()
    });
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let failing = submit(&mut scheduler, &prompt(&model, FOX), 20, Some(&path));
    let fine = submit(&mut scheduler, &prompt(&model, FOX), 20, None);
    // The reader has the header and wants no more.
    reader.join().unwrap();
    run(&mut scheduler);
    let message = failing.lock().unwrap().outcome.clone().unwrap().unwrap_err();
    assert!(message.contains("pipe: the trace cannot be written: Broken pipe"), "{message}");
    assert_eq!(fine.lock().unwrap().ids.len(), 20);
}

#[test]
fn only_a_binary_trace_is_converted_and_never_onto_itself() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let [csv, binary] = ["a.csv", "a.trace"].map(|name| folder.path().join(name));
    record(&model, &prompt(&model, "The"), 2, &binary);
    let before = std::fs::read(&binary).unwrap();
    let onto_itself = convert_to_csv(&binary, &folder.path().join("./a.trace"), &|| false).unwrap_err();
    assert!(onto_itself.to_string().contains("onto itself"), "{onto_itself}");
    assert_eq!(std::fs::read(&binary).unwrap(), before);
    convert_to_csv(&binary, &csv, &|| false).unwrap();
    let message = convert_to_csv(&csv, &folder.path().join("b.csv"), &|| false).unwrap_err().to_string();
    assert!(message.ends_with("only a binary trace is converted, and this one holds the choices already"), "{message}");
    assert!(!folder.path().join("b.csv").exists());
}
