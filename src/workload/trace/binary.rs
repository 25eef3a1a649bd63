//! The binary format: the routers' logits of every token.

use super::{ContentError, MAX_CHOICES, MAX_KEYS, MAX_USED};
use crate::routing::{Choice, RoutingRule, choose};
use crate::store::policy::{Trace, Visit};
use std::io::{ErrorKind, Read};

/// First bytes of a binary trace.
pub(super) const MAGIC: [u8; 8] = *b"CLUTRACE";
/// The one version there is.
const VERSION: u32 = 1;
/// Bytes before the first record.
const HEADER_BYTES: usize = 40;

/// What a binary trace says of its model and text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// Layers of the model.
    pub n_layers: usize,
    /// Experts of a layer.
    pub n_experts: usize,
    /// How choices and weights follow from logits.
    pub rule: RoutingRule,
    /// Tokens of the prompt; those come first.
    pub n_prompt: usize,
}

impl Header {
    /// The header's bytes, without a word about records.
    ///
    /// # Panics
    /// If a count is not below 2^32, which a model that loads has not.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let count = |n: usize| u32::try_from(n).expect("counts of a model fit").to_le_bytes();
        let fields = [
            VERSION.to_le_bytes(),
            count(self.n_layers),
            count(self.n_experts),
            count(self.rule.n_used),
            u32::from(self.rule.normalise).to_le_bytes(),
            self.rule.scale.to_le_bytes(),
            count(self.n_prompt),
            [0; 4],
        ];
        let mut bytes = [0; HEADER_BYTES];
        let bytes_of_fields = MAGIC.iter().chain(fields.as_flattened());
        bytes.iter_mut().zip(bytes_of_fields).for_each(|(place, byte)| *place = *byte);
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, ContentError> {
        let (words, _) = bytes.as_chunks::<4>();
        let [_, _, version, n_layers, n_experts, n_used, normalise, scale, n_prompt, zero] = *words else {
            unreachable!("a header has ten words")
        };
        let [version, n_layers, n_experts, n_used, normalise, n_prompt, zero] =
            [version, n_layers, n_experts, n_used, normalise, n_prompt, zero].map(u32::from_le_bytes);
        let scale = f32::from_le_bytes(scale);
        if version != VERSION {
            return Err(ContentError::Version { found: version, known: VERSION });
        }
        if u64::from(n_layers).saturating_mul(u64::from(n_experts)) > MAX_KEYS as u64 {
            return Err(ContentError::TooLarge { n_layers: n_layers.into(), n_experts: n_experts.into() });
        }
        let most_used = n_experts.min(MAX_USED);
        let wrong = |field, found: String, expected: &str| {
            Err(ContentError::Header { field, found, expected: expected.to_owned() })
        };
        match () {
            () if n_layers == 0 => wrong("the number of layers", "0".to_owned(), "at least 1"),
            () if !(1..=most_used).contains(&n_used) => {
                wrong("the number of experts used", n_used.to_string(), &format!("1 to {most_used}"))
            }
            () if normalise > 1 => wrong("whether weights are normalised", normalise.to_string(), "0 or 1"),
            () if !scale.is_finite() => wrong("the scale of weights", scale.to_string(), "a finite number"),
            () if zero != 0 => wrong("the reserved field", zero.to_string(), "0"),
            () => Ok(Self {
                n_layers: n_layers as usize,
                n_experts: n_experts as usize,
                rule: RoutingRule { n_used: n_used as usize, normalise: normalise == 1, scale },
                n_prompt: n_prompt as usize,
            }),
        }
    }

    /// Router logits of a token: layers times experts.
    fn n_logits(&self) -> usize {
        self.n_layers.saturating_mul(self.n_experts)
    }
}

/// Reads a binary trace token by token.
#[derive(Debug)]
pub struct LogitsReader<R> {
    header: Header,
    input: R,
    record: Vec<u8>,
    logits: Vec<f32>,
    left_over: usize,
}

impl<R: Read> LogitsReader<R> {
    /// Reads the header, which begins with the magic bytes.
    ///
    /// # Errors
    /// Where the header is no known one, or cannot be read.
    pub fn new(mut input: R) -> Result<Self, ContentError> {
        let mut bytes = [0; HEADER_BYTES];
        let found = read_full(&mut input, &mut bytes)?;
        if found < HEADER_BYTES {
            return Err(ContentError::HeaderTruncated { found, expected: HEADER_BYTES });
        }
        let header = Header::decode(&bytes)?;
        // At most MAX_KEYS logits.
        let record = vec![0; header.n_logits().saturating_add(1).saturating_mul(4)];
        Ok(Self { header, input, record, logits: vec![0.0; header.n_logits()], left_over: 0 })
    }

    /// What the trace says of its model and text.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Id of the next token and its router logits, `[n_layers, n_experts]`; none after the last whole record.
    ///
    /// # Errors
    /// Where the input cannot be read.
    #[allow(clippy::should_implement_trait)] // It lends what it gives.
    pub fn next(&mut self) -> Result<Option<(u32, &[f32])>, ContentError> {
        let found = read_full(&mut self.input, &mut self.record)?;
        let (words, _) = self.record.as_chunks::<4>();
        let (false, Some((id, logits))) = (found < self.record.len(), words.split_first()) else {
            self.left_over = found;
            return Ok(None);
        };
        self.logits.iter_mut().zip(logits).for_each(|(logit, bytes)| *logit = f32::from_le_bytes(*bytes));
        Ok(Some((u32::from_le_bytes(*id), &self.logits)))
    }

    /// Bytes of a record that was not written to its end, once `next` has found none.
    pub fn left_over(&self) -> usize {
        self.left_over
    }

    /// As `next`, and puts the token's choices as the router makes them, `[n_layers, n_used]`, into `choices`.
    ///
    /// # Errors
    /// As `next`.
    pub fn next_choices(&mut self, choices: &mut Vec<Choice>) -> Result<Option<u32>, ContentError> {
        let Header { n_experts, rule, .. } = self.header;
        choices.clear();
        let Some((id, logits)) = self.next()? else { return Ok(None) };
        let (mut probs, mut chosen) = (vec![0.0; n_experts], Vec::with_capacity(rule.n_used));
        for logits in logits.chunks_exact(n_experts) {
            choose(logits, rule, &mut probs, &mut chosen);
            choices.append(&mut chosen);
        }
        Ok(Some(id))
    }

    /// The choices of the tokens that are left, and the bytes of a record that was not written to its end.
    pub(super) fn into_trace(mut self) -> Result<(Trace, usize), ContentError> {
        let Header { n_layers, n_experts, rule, n_prompt } = self.header;
        let mut trace = Trace { n_layers, n_experts, ..Trace::default() };
        let mut choices = Vec::new();
        let mut token = 0_u32;
        while self.next_choices(&mut choices)?.is_some() {
            for (layer, choices) in (0_usize..).zip(choices.chunks_exact(rule.n_used)) {
                // Below MAX_KEYS, as layer and expert are below their counts.
                let first = layer.saturating_mul(n_experts) as u32;
                trace.keys.extend(choices.iter().map(|choice| first.saturating_add(choice.expert)));
                trace.visits.push(Visit { token, end: trace.keys.len() });
            }
            if trace.keys.len() > MAX_CHOICES {
                return Err(ContentError::TooLong);
            }
            token = token.saturating_add(1);
            if token as usize <= n_prompt {
                trace.n_prompt_keys = trace.keys.len();
            }
        }
        match trace.keys.is_empty() {
            true => Err(ContentError::Empty),
            false => Ok((trace, self.left_over)),
        }
    }
}

/// Fills `place` as far as `input` goes, and says how far that is.
fn read_full(input: &mut impl Read, place: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0_usize;
    while let Some(rest) = place.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(n) => filled = filled.saturating_add(n),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
