//! One text in the making: what it was asked for, how far it is, when it ends.

use super::GenerateError;
use super::stop::StopFilter;
use crate::model::Model;
use crate::sampling::{Sampler, SamplingOptions};
use crate::tokenizer::StreamDecoder;
use std::path::PathBuf;

/// What a generation is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens of the answer.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Go on after the model's end tokens.
    pub ignore_eos: bool,
    /// File that the routing of every token is recorded in: CSV where its name ends in `.csv`, else binary. Such a
    /// generation runs its whole prompt, also where a cache of an earlier text would serve.
    pub trace: Option<PathBuf>,
}

/// One token of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The token.
    pub id: u32,
    /// Text that is certain now: empty where a character is unfinished or a stop string may have begun.
    pub text: String,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model gave an end token, which is not part of the answer.
    Eos,
    /// A stop text came up.
    Stop,
    /// The answer has as many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    Context,
    /// The caller wanted no more.
    Aborted,
}

/// How a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why.
    pub reason: StopReason,
    /// Text that was held back until now and belongs to the answer.
    pub text: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that a cache of an earlier text held already.
    pub reused_tokens: usize,
    /// Tokens of the answer.
    pub tokens: usize,
    /// Time spent on the prompt, to the first token, in microseconds.
    pub prompt_us: u64,
    /// Time spent on the tokens after the first, in microseconds.
    pub decode_us: u64,
}

/// The state of one generation between passes.
#[derive(Debug)]
pub(super) struct Generation {
    options: GenerateOptions,
    /// Prompt, then answer.
    tokens: Vec<u32>,
    prompt_tokens: usize,
    sampler: Sampler,
    decoder: StreamDecoder,
    filter: StopFilter,
}

/// What came of one more token.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// A token, and the generation goes on.
    Piece(Piece),
    /// A last token, or none where the model gave an end token.
    Last(Option<Piece>, StopReason),
}

impl Generation {
    /// Checks what is asked for.
    pub fn new(prompt: Vec<u32>, options: GenerateOptions, n_ctx: usize) -> Result<Self, GenerateError> {
        options.sampling.check()?;
        if prompt.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        if prompt.len() >= n_ctx {
            return Err(GenerateError::PromptTooLong { prompt_tokens: prompt.len(), n_ctx });
        }
        Ok(Self {
            prompt_tokens: prompt.len(),
            sampler: Sampler::new(options.sampling.clone()),
            decoder: StreamDecoder::default(),
            filter: StopFilter::new(&options.stop),
            tokens: prompt,
            options,
        })
    }

    /// Prompt and answer so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Tokens of the answer so far.
    pub fn answer_tokens(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// True where nothing at all is to be generated.
    pub fn wants_nothing(&self) -> bool {
        self.options.max_tokens == 0
    }

    /// Chooses the next token from the `logits` of the newest one.
    pub fn accept(&mut self, model: &Model, logits: &[f32]) -> Step {
        let id = self.sampler.sample(logits, &self.tokens);
        let tokenizer = model.tokenizer().ok();
        if !self.options.ignore_eos && tokenizer.is_some_and(|tokenizer| tokenizer.is_end(id)) {
            return Step::Last(None, StopReason::Eos);
        }
        self.tokens.push(id);
        // Without a tokenizer there is no text, only ids.
        let bytes = tokenizer.map_or(&[][..], |tokenizer| tokenizer.text_bytes(id, false));
        let passed = self.filter.push(&self.decoder.push(bytes));
        let piece = Piece { id, text: passed.text };
        if passed.stopped {
            Step::Last(Some(piece), StopReason::Stop)
        } else if self.answer_tokens() >= self.options.max_tokens {
            Step::Last(Some(piece), StopReason::MaxTokens)
        } else if self.tokens.len() >= model.n_ctx() {
            Step::Last(Some(piece), StopReason::Context)
        } else {
            Step::Piece(piece)
        }
    }

    /// Text held back, for an answer that ended for `reason`.
    pub fn flush(&mut self, reason: StopReason) -> String {
        if reason == StopReason::Stop {
            return String::new(); // What was held back lies behind the stop string.
        }
        let unfinished = self.decoder.finish();
        let passed = self.filter.push(&unfinished);
        passed.text + &self.filter.finish()
    }
}
