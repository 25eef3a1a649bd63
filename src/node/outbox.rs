//! A generation's pieces on their way to JavaScript: bounded, so that a slow reader slows the engine.

use super::error::failure;
use super::mailbox::Mailbox;
use super::shapes::{Drained, Failure, Outcome};
use crate::generate::{self, GenerateError, Piece, Sink, StopReason};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Unread pieces at which a generation stalls. Enough that a reader who keeps up never stalls it, few enough that a
/// generation which nobody reads stops soon.
const CAPACITY: usize = 32;

/// Shared by the engine thread, which fills it, and the JavaScript thread, which drains it.
pub(super) struct Outbox {
    request: u32,
    contents: Mutex<Contents>,
    cancelled: AtomicBool,
    mailbox: Arc<Mailbox>,
}

#[derive(Default)]
struct Contents {
    pieces: VecDeque<Piece>,
    end: Option<Result<Outcome, Failure>>,
}

impl Outbox {
    pub(super) fn new(request: u32, mailbox: Arc<Mailbox>) -> Self {
        Self { request, contents: Mutex::default(), cancelled: AtomicBool::new(false), mailbox }
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Takes at most `limit` pieces, and the end once all pieces are taken. Also says whether the generation may have
    /// been stalled until now.
    pub(super) fn drain(&self, limit: usize) -> (Drained, bool) {
        let mut contents = self.lock();
        let was_full = contents.pieces.len() >= CAPACITY;
        let n_taken = limit.min(contents.pieces.len());
        let (ids, texts) = contents.pieces.drain(..n_taken).map(|piece| (piece.id, piece.text)).unzip();
        let end = if contents.pieces.is_empty() { contents.end.clone() } else { None };
        let (outcome, failure) = match end {
            None => (None, None),
            Some(Ok(outcome)) => (Some(outcome), None),
            Some(Err(failure)) => (None, Some(failure)),
        };
        (Drained { ids, texts, outcome, failure }, was_full)
    }

    /// Ends the generation; the first end counts.
    pub(super) fn end(&self, end: Result<Outcome, Failure>) {
        let mut contents = self.lock();
        if contents.end.is_none() {
            contents.end = Some(end);
            drop(contents);
            self.mailbox.pieces(self.request);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine's end of an [`Outbox`]. Dropped without an end, after a panic, it fails the generation.
pub(super) struct OutboxSink {
    pub(super) outbox: Arc<Outbox>,
    /// The model is being disposed of.
    pub(super) closing: Arc<AtomicBool>,
}

impl Sink for OutboxSink {
    fn has_room(&self) -> bool {
        self.outbox.lock().pieces.len() < CAPACITY
    }

    fn cancelled(&self) -> bool {
        self.outbox.cancelled.load(Ordering::Acquire) || self.closing.load(Ordering::Acquire)
    }

    fn piece(&mut self, piece: Piece) {
        self.outbox.lock().pieces.push_back(piece);
        self.outbox.mailbox.pieces(self.outbox.request);
    }

    fn finish(self: Box<Self>, outcome: Result<generate::Outcome, GenerateError>) {
        self.outbox.end(outcome.map(Outcome::from).map_err(|error| failure(&error.into())));
    }
}

impl Drop for OutboxSink {
    fn drop(&mut self) {
        let abandoned = Failure {
            code: "INTERNAL".to_owned(),
            message: "the engine gave this generation up after an internal error; please report it".to_owned(),
        };
        self.outbox.end(Err(abandoned));
    }
}

impl From<generate::Outcome> for Outcome {
    fn from(outcome: generate::Outcome) -> Self {
        let reason = match outcome.reason {
            StopReason::Eos => "eos",
            StopReason::Stop => "stop",
            StopReason::MaxTokens => "max-tokens",
            StopReason::Context => "context",
            StopReason::Aborted => "abort",
        };
        Self {
            reason: reason.to_owned(),
            text: outcome.text,
            prompt_tokens: outcome.prompt_tokens as i64,
            reused_tokens: outcome.reused_tokens as i64,
            tokens: outcome.tokens as i64,
            prompt_ms: outcome.prompt_us as f64 / 1e3,
            decode_ms: outcome.decode_us as f64 / 1e3,
        }
    }
}
