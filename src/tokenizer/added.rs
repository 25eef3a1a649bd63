//! Finds control and user-defined tokens in text.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::tokenizer::TokenizerError;
use crate::tokenizer::vocab::{Kind, Vocab};

/// The tokens that are cut out of a text before anything else happens to it.
#[derive(Debug)]
pub(super) struct AddedTokens {
    user_defined: Matcher,
    with_control: Matcher,
}

impl AddedTokens {
    /// Collects the control and user-defined tokens of `vocab`.
    pub fn new(vocab: &Vocab) -> Result<Self, TokenizerError> {
        Ok(Self {
            user_defined: Matcher::new(vocab, |kind| kind == Kind::UserDefined)?,
            with_control: Matcher::new(vocab, |kind| matches!(kind, Kind::UserDefined | Kind::Control))?,
        })
    }

    /// Calls `visit` with the parts of `text` in order: stretches of text, never empty, and tokens.
    ///
    /// Control tokens are text unless `control` is set. Of tokens that overlap, the one that begins first is taken,
    /// of those that begin at the same place the longest, and of equal texts the lowest id.
    pub fn split<'t>(&self, text: &'t str, control: bool, mut visit: impl FnMut(Part<'t>)) {
        let matcher = if control { &self.with_control } else { &self.user_defined };
        let mut done = 0;
        if let Some(automaton) = &matcher.automaton {
            for found in automaton.find_iter(text) {
                if done < found.start() {
                    visit(Part::Text(&text[done..found.start()]));
                }
                visit(Part::Token(matcher.ids[found.pattern()]));
                done = found.end();
            }
        }
        if done < text.len() {
            visit(Part::Text(&text[done..]));
        }
    }
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    /// Text without added tokens.
    Text(&'t str),
    /// The id of an added token.
    Token(u32),
}

#[derive(Debug)]
struct Matcher {
    /// Absent where there is nothing to find.
    automaton: Option<AhoCorasick>,
    /// Ids by pattern.
    ids: Vec<u32>,
}

impl Matcher {
    fn new(vocab: &Vocab, wanted: impl Fn(Kind) -> bool) -> Result<Self, TokenizerError> {
        // An empty token would be found everywhere. A token that is not UTF-8 cannot be found in text, and a part of
        // one could be found within a character, so neither is looked for.
        let tokens = || {
            vocab
                .iter()
                .filter(|&(_, bytes, kind)| wanted(kind) && !bytes.is_empty() && std::str::from_utf8(bytes).is_ok())
        };
        let ids: Vec<u32> = tokens().map(|(id, _, _)| id).collect();
        if ids.is_empty() {
            return Ok(Self { automaton: None, ids });
        }
        let automaton =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(tokens().map(|(_, bytes, _)| bytes))?;
        Ok(Self { automaton: Some(automaton), ids })
    }
}
