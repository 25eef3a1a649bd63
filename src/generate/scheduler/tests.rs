//! How generations share a pass, and memory.

use super::*;
use crate::model::LoadOptions;
use crate::sampling::SamplingOptions;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[test]
fn a_long_prompt_leaves_the_others_their_share_of_a_pass() {
    assert_eq!(shares(&[12_000, 3, 1], 512), [508, 3, 1]);
    assert_eq!(shares(&[12_000, 9_000], 512), [256, 256]);
    assert_eq!(shares(&[5, 5], 512), [5, 5]);
    assert_eq!(shares(&[1; 600], 512).iter().sum::<usize>(), 512);
    assert!(shares(&[], 512).is_empty());
}

/// Ids of an answer, and whether it ended well.
type Answer = Arc<Mutex<(Vec<u32>, bool)>>;

struct TestSink(Answer);

impl Sink for TestSink {
    fn has_room(&self) -> bool {
        true
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn piece(&mut self, piece: Piece) {
        self.0.lock().unwrap().0.push(piece.id);
    }

    fn finish(self: Box<Self>, outcome: Result<Outcome, GenerateError>) {
        self.0.lock().unwrap().1 = outcome.is_ok();
    }
}

fn scheduler() -> Scheduler {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("npm/tiny-stories-moe/tiny-qwen3moe-Q4_K_M.gguf");
    let options = LoadOptions { n_threads: Some(2), n_ctx: Some(128), ..LoadOptions::default() };
    Scheduler::new(Arc::new(Model::load(&path, &options, &mut |_| ControlFlow::Continue(())).unwrap()))
}

fn submit(scheduler: &mut Scheduler, prompt: Vec<u32>, max_tokens: usize) -> Answer {
    submit_traced(scheduler, prompt, max_tokens, None)
}

fn submit_traced(scheduler: &mut Scheduler, prompt: Vec<u32>, max_tokens: usize, trace: Option<PathBuf>) -> Answer {
    let sampling = SamplingOptions { temperature: 0.0, ..SamplingOptions::default() };
    let options = GenerateOptions { max_tokens, sampling, stop: Vec::new(), ignore_eos: true, trace };
    let answer = Answer::default();
    scheduler.submit(prompt, options, Box::new(TestSink(Arc::clone(&answer))));
    answer
}

fn prompts() -> Vec<Vec<u32>> {
    (0..5u32).map(|i| (0..30).map(|j| (i * 613 + j * j * 17 + 300) % 4000).collect()).collect()
}

#[test]
fn texts_that_memory_cannot_hold_together_wait_for_each_other_and_stay_the_same() {
    let run = |limit: Option<usize>| {
        let mut scheduler = scheduler();
        scheduler.limit = limit.unwrap_or(usize::MAX);
        let answers: Vec<_> = prompts().into_iter().map(|prompt| submit(&mut scheduler, prompt, 60)).collect();
        let (mut most_held, mut most_at_once) = (0, 0);
        while scheduler.step() == Progress::Worked {
            most_held = most_held.max(scheduler.held());
            most_at_once =
                most_at_once.max(scheduler.active.iter().filter(|active| !active.sequence.is_empty()).count());
        }
        assert!(answers.iter().all(|answer| answer.lock().unwrap().1));
        let ids: Vec<_> = answers.iter().map(|answer| answer.lock().unwrap().0.clone()).collect();
        (ids, most_held, most_at_once)
    };
    let (right, free, _) = run(None);
    assert!(right.iter().all(|ids| ids.len() == 60) && free > 400);
    for limit in [128, 150, 250] {
        let (found, held, at_once) = run(Some(limit));
        assert!(found == right, "with {limit} positions");
        assert!(held <= limit && at_once > 1, "{held} positions, {at_once} texts");
    }
}

#[test]
fn caches_of_ended_texts_make_way_first() {
    let mut scheduler = scheduler();
    scheduler.limit = 128;
    let [first, second, ..] = &prompts()[..] else { unreachable!() };
    submit(&mut scheduler, first.clone(), 50);
    while scheduler.step() == Progress::Worked {}
    assert_eq!(scheduler.held(), 79);
    submit(&mut scheduler, second.clone(), 50);
    while scheduler.step() == Progress::Worked {
        assert!(scheduler.held() <= 128);
    }
    assert_eq!(scheduler.held(), 79);
}

#[test]
fn other_work_gets_the_positions_that_it_takes() {
    let mut scheduler = scheduler();
    scheduler.limit = 128;
    let [first, second, ..] = &prompts()[..] else { unreachable!() };
    submit(&mut scheduler, first.clone(), 30);
    while scheduler.step() == Progress::Worked {}
    let going_on = submit(&mut scheduler, second.clone(), 30);
    (0..10).for_each(|_| _ = scheduler.step());
    scheduler.make_way(10);
    assert_eq!(scheduler.held(), 59 + 39, "there was room");
    scheduler.make_way(80);
    assert_eq!(scheduler.held(), 39);
    scheduler.make_way(100);
    assert_eq!(scheduler.held(), 0);
    while scheduler.step() == Progress::Worked {}
    let alone = submit(&mut scheduler, second.clone(), 30);
    while scheduler.step() == Progress::Worked {}
    assert_eq!(*going_on.lock().unwrap(), *alone.lock().unwrap());
}

#[test]
fn a_text_that_makes_way_is_traced_once() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str, makes_way: bool| {
        let mut scheduler = scheduler();
        let path = folder.path().join(name);
        submit_traced(&mut scheduler, prompts()[1].clone(), 20, Some(path.clone()));
        (0..10).for_each(|_| _ = scheduler.step());
        if makes_way {
            scheduler.limit = 128;
            scheduler.make_way(128);
            assert_eq!(scheduler.held(), 0);
        }
        while scheduler.step() == Progress::Worked {}
        std::fs::read(path).unwrap()
    };
    for kind in ["trace.csv", "trace.bin"] {
        assert!(trace(&format!("a-{kind}"), true) == trace(&format!("b-{kind}"), false), "{kind}");
    }
}
