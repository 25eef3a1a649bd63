//! Generations as a program sees them: text, ends, cancelling, waiting, several at once.

#[path = "../support/copy.rs"]
mod copy;
#[path = "../support/gguf_writer.rs"]
mod gguf_writer;
#[path = "../support/models.rs"]
mod models;

use clutor::generate::{GenerateError, GenerateOptions, Outcome, Piece, Progress, Scheduler, Sink, StopReason};
use clutor::model::Model;
use clutor::sampling::SamplingOptions;
use copy::{copy_of, set};
use gguf_writer::U32;
use models::{load, trained_model};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a generation gave, and the switches that a program has.
#[derive(Default)]
struct Answer {
    pieces: Mutex<Vec<Piece>>,
    outcome: Mutex<Option<Result<Outcome, String>>>,
    /// Pieces that the sink takes before it is full.
    room: AtomicUsize,
    cancelled: AtomicBool,
}

struct TestSink(Arc<Answer>);

impl Sink for TestSink {
    fn has_room(&self) -> bool {
        self.0.pieces.lock().unwrap().len() < self.0.room.load(Ordering::Relaxed)
    }

    fn cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    fn piece(&mut self, piece: Piece) {
        self.0.pieces.lock().unwrap().push(piece);
    }

    fn finish(self: Box<Self>, outcome: Result<Outcome, GenerateError>) {
        *self.0.outcome.lock().unwrap() = Some(outcome.map_err(|error| error.to_string()));
    }
}

impl Answer {
    fn submit(scheduler: &mut Scheduler, prompt: &[u32], options: GenerateOptions) -> Arc<Self> {
        let answer = Arc::new(Self { room: AtomicUsize::new(usize::MAX), ..Self::default() });
        scheduler.submit(prompt.to_vec(), options, Box::new(TestSink(Arc::clone(&answer))));
        answer
    }

    fn ids(&self) -> Vec<u32> {
        self.pieces.lock().unwrap().iter().map(|piece| piece.id).collect()
    }

    fn outcome(&self) -> Outcome {
        self.outcome.lock().unwrap().clone().expect("it ended").expect("it succeeded")
    }

    fn error(&self) -> String {
        self.outcome.lock().unwrap().clone().expect("it ended").expect_err("it failed")
    }

    /// All text, that of the end included.
    fn text(&self) -> String {
        let pieces: String = self.pieces.lock().unwrap().iter().map(|piece| piece.text.as_str()).collect();
        pieces + &self.outcome().text
    }
}

fn model() -> Arc<Model> {
    Arc::new(load(&trained_model(), clutor::kernels::best().name(), 2))
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = SamplingOptions { temperature: 0.0, ..SamplingOptions::default() };
    GenerateOptions { max_tokens, sampling, stop: Vec::new(), ignore_eos: true, trace: None }
}

fn prompt(model: &Model, text: &str) -> Vec<u32> {
    model.tokenizer().unwrap().encode(text, false)
}

fn run(scheduler: &mut Scheduler) {
    while scheduler.step() == Progress::Worked {}
}

/// One generation on a scheduler of its own.
fn alone(model: &Arc<Model>, prompt: &[u32], options: GenerateOptions) -> Arc<Answer> {
    let mut scheduler = Scheduler::new(Arc::clone(model));
    let answer = Answer::submit(&mut scheduler, prompt, options);
    run(&mut scheduler);
    assert_eq!(scheduler.step(), Progress::Idle);
    answer
}

const FOX: &str = "Once upon a time there was a little fox";

#[test]
fn pieces_put_together_are_the_text_of_the_tokens() {
    let model = model();
    let answer = alone(&model, &prompt(&model, FOX), greedy(40));
    let text = model.tokenizer().unwrap().decode_text(&answer.ids(), false);
    assert_eq!(answer.text(), text);
    let outcome = answer.outcome();
    assert_eq!((outcome.reason, outcome.tokens), (StopReason::MaxTokens, 40));
    assert!(text.starts_with(" who "), "{text}");
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_seed_another() {
    let model = model();
    let sampled = |seed| {
        let sampling = SamplingOptions { seed, ..SamplingOptions::default() };
        alone(&model, &prompt(&model, FOX), GenerateOptions { sampling, ..greedy(30) }).text()
    };
    assert_eq!(sampled(1), sampled(1));
    assert_ne!(sampled(1), sampled(2));
}

#[test]
fn a_stop_text_cut_from_anywhere_ends_the_answer_before_it() {
    let model = model();
    let whole = alone(&model, &prompt(&model, FOX), greedy(30)).text();
    for from in (1..whole.len() - 12).step_by(5) {
        for len in [1, 2, 5, 12] {
            let stop = &whole[from..from + len];
            let options = GenerateOptions { stop: vec![stop.into()], ..greedy(30) };
            let answer = alone(&model, &prompt(&model, FOX), options);
            assert_eq!(answer.text(), whole[..whole.find(stop).unwrap()], "stop {stop:?}");
            assert_eq!(answer.outcome().reason, StopReason::Stop);
        }
    }
}

#[test]
fn an_end_token_ends_the_answer_and_is_not_part_of_it() {
    let model = model();
    let ids = alone(&model, &prompt(&model, FOX), greedy(12)).ids();
    // The same model in a file that calls its eighth token the end of a turn.
    let mut file = copy_of(&trained_model());
    set(&mut file, "tokenizer.ggml.eot_token_id", U32, ids[7].to_le_bytes().to_vec());
    let folder = tempfile::tempdir().unwrap();
    file.write(&folder.path().join("model.gguf"));
    let model = Arc::new(load(&folder.path().join("model.gguf"), clutor::kernels::best().name(), 2));
    let heeded = alone(&model, &prompt(&model, FOX), GenerateOptions { ignore_eos: false, ..greedy(12) });
    let first = ids.iter().position(|id| *id == ids[7]).unwrap();
    assert_eq!((heeded.ids(), heeded.outcome().reason), (ids[..first].to_vec(), StopReason::Eos));
    assert_eq!(alone(&model, &prompt(&model, FOX), greedy(12)).ids(), ids);
}

#[test]
fn a_full_context_is_a_clear_stop() {
    let model = model();
    let ids = prompt(&model, FOX);
    let answer = alone(&model, &ids, greedy(10_000));
    let outcome = answer.outcome();
    assert_eq!(outcome.reason, StopReason::Context);
    assert_eq!(ids.len() + outcome.tokens, model.n_ctx());
}

#[test]
fn a_prompt_that_cannot_be_read_is_refused_and_the_next_one_works() {
    let model = model();
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let long = Answer::submit(&mut scheduler, &[5; 512], greedy(1));
    assert!(long.error().starts_with("the prompt has 512 tokens, but the context holds 512 with the answer"));
    assert!(Answer::submit(&mut scheduler, &[], greedy(1)).error().contains("empty"));
    assert!(Answer::submit(&mut scheduler, &[4096], greedy(1)).error().contains("4096"));
    let wrong = SamplingOptions { top_p: 2.0, ..SamplingOptions::default() };
    let wrong = GenerateOptions { sampling: wrong, ..greedy(1) };
    assert!(Answer::submit(&mut scheduler, &[5], wrong).error().contains("top_p"));
    let full = Answer::submit(&mut scheduler, &[5; 511], greedy(3));
    run(&mut scheduler);
    assert_eq!((full.outcome().reason, full.outcome().tokens), (StopReason::Context, 1));
}

#[test]
fn nothing_asked_for_is_nothing_given() {
    let answer = alone(&model(), &[5], greedy(0));
    assert_eq!((answer.outcome().tokens, answer.outcome().reason), (0, StopReason::MaxTokens));
}

#[test]
fn a_full_sink_holds_its_generation_back_and_no_other() {
    let model = model();
    let ids = prompt(&model, FOX);
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let slow = Answer::submit(&mut scheduler, &ids, greedy(20));
    slow.room.store(3, Ordering::Relaxed);
    let quick = Answer::submit(&mut scheduler, &ids, greedy(20));
    run(&mut scheduler);
    assert_eq!(scheduler.step(), Progress::Stalled);
    assert_eq!((slow.ids().len(), quick.outcome().tokens), (3, 20));
    slow.room.store(usize::MAX, Ordering::Relaxed);
    run(&mut scheduler);
    assert_eq!(slow.ids(), quick.ids());
}

#[test]
fn a_cancelled_generation_ends_with_what_it_has_even_where_its_sink_is_full() {
    let model = model();
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let answer = Answer::submit(&mut scheduler, &prompt(&model, FOX), greedy(100));
    answer.room.store(5, Ordering::Relaxed);
    run(&mut scheduler);
    answer.cancelled.store(true, Ordering::Relaxed);
    assert_eq!(scheduler.step(), Progress::Worked);
    assert_eq!((answer.outcome().reason, answer.outcome().tokens), (StopReason::Aborted, 5));
    assert_eq!(scheduler.step(), Progress::Idle);
}

#[test]
fn generations_together_give_what_each_gives_alone() {
    let model = model();
    let texts = [FOX, "The king", "\"Come here,\" said the old woman, \"and", "One day"];
    let sampled = |seed| GenerateOptions { sampling: SamplingOptions { seed, ..Default::default() }, ..greedy(25) };
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let submit =
        |(seed, text): (usize, &&str)| Answer::submit(&mut scheduler, &prompt(&model, text), sampled(seed as u64));
    let together: Vec<_> = texts.iter().enumerate().map(submit).collect();
    run(&mut scheduler);
    for (seed, (text, together)) in texts.iter().zip(&together).enumerate() {
        assert_eq!(together.ids(), alone(&model, &prompt(&model, text), sampled(seed as u64)).ids(), "{text}");
    }
}

#[test]
fn a_prompt_that_goes_on_from_an_earlier_text_reads_only_what_is_new() {
    let model = model();
    let ids = prompt(&model, FOX);
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    let first = Answer::submit(&mut scheduler, &ids, greedy(10));
    run(&mut scheduler);
    let longer: Vec<u32> = [ids.clone(), first.ids(), prompt(&model, " Then")].concat();
    let second = Answer::submit(&mut scheduler, &longer, greedy(10));
    run(&mut scheduler);
    // The last token of the answer was never run through the model.
    assert_eq!(second.outcome().reused_tokens, ids.len() + 9);
    let fresh = alone(&model, &longer, greedy(10));
    assert_eq!((fresh.outcome().reused_tokens, fresh.ids()), (0, second.ids()));
}

#[test]
fn a_side_question_that_shares_the_first_words_costs_a_conversation_nothing() {
    let model = model();
    let long = prompt(&model, &FOX.repeat(8));
    let mut scheduler = Scheduler::new(Arc::clone(&model));
    Answer::submit(&mut scheduler, &long, greedy(1));
    run(&mut scheduler);
    let side = Answer::submit(&mut scheduler, &[&long[..3], &[7, 8, 9]].concat(), greedy(1));
    Answer::submit(&mut scheduler, &long, greedy(0));
    run(&mut scheduler);
    let again = Answer::submit(&mut scheduler, &long, greedy(1));
    run(&mut scheduler);
    assert_eq!((side.outcome().reused_tokens, again.outcome().reused_tokens), (3, long.len() - 1));
}
