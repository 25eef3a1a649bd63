//! The tokenizer with a vocabulary small enough to follow by hand.

use proptest::prelude::*;

use super::merges::Merges;
use super::token_index::TokenIndex;
use super::vocab::Vocab;
use super::{SpecialIds, Tables, Tokenizer, TokenizerError, byte_level};

/// The tables of a made-up model, owned.
#[derive(Clone)]
struct Model {
    model: &'static str,
    pre: &'static str,
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
    special: SpecialIds,
}

impl Model {
    /// The 256 bytes as tokens 0 to 255, and a token for the result of each merge from 256 on.
    fn new(pre: &'static str, merges: &[&str]) -> Self {
        let mut letters = vec![String::new(); 256];
        for letter in '\0'..='\u{200}' {
            if let Some(byte) = byte_level::byte_of(letter) {
                letters[usize::from(byte)] = letter.to_string();
            }
        }
        let tokens = letters.into_iter().chain(merges.iter().map(|merge| merge.replace(' ', ""))).collect::<Vec<_>>();
        let merges = merges.iter().map(|&merge| merge.to_owned()).collect();
        Self { model: "gpt2", pre, types: vec![1; tokens.len()], tokens, merges, special: SpecialIds::default() }
    }

    /// Adds a token and gives its id.
    fn add(&mut self, text: &str, token_type: i32) -> u32 {
        self.tokens.push(text.to_owned());
        self.types.push(token_type);
        self.tokens.len() as u32 - 1
    }

    fn tables(&self) -> Tables<'_> {
        Tables {
            model: self.model,
            pre: self.pre,
            tokens: self.tokens.iter().map(String::as_bytes).collect(),
            token_types: self.types.clone(),
            merges: self.merges.iter().map(String::as_bytes).collect(),
            special: self.special,
        }
    }

    fn tokenizer(&self) -> Tokenizer {
        Tokenizer::new(self.tables()).expect("sound tables")
    }

    fn error(&self) -> String {
        Tokenizer::new(self.tables()).expect_err("tables at fault").to_string()
    }
}

const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// `he` 256, `ll` 257, `hell` 258, ` hell` 259, `hello` 260.
const HELLO: [&str; 5] = ["h e", "l l", "he ll", "Ġ hell", "hell o"];

#[test]
fn the_merge_with_the_lowest_rank_comes_first_and_of_equal_ones_the_leftmost() {
    let tokenizer = Model::new("gpt-2", &HELLO).tokenizer();
    // ` hell` has a lower rank than `hello`, so the o is left over after a space.
    assert_eq!(tokenizer.encode("hello hello", false), [260, 259, u32::from(b'o')]);
    assert_eq!(tokenizer.encode("lll", false), [257, u32::from(b'l')]);
}

#[test]
fn what_is_not_ascii_is_merged_byte_by_byte() {
    // é is C3 A9, which the byte-level alphabet writes as Ã and ©.
    let tokenizer = Model::new("gpt-2", &["Ã ©"]).tokenizer();
    assert_eq!(tokenizer.encode("éa", false), [256, u32::from(b'a')]);
    assert_eq!(tokenizer.encode_bytes(b"\xc3\xa9\xff", false), [256, 0xef, 0xbf, 0xbd]);
}

#[test]
fn control_tokens_are_text_unless_asked_for_and_user_defined_ones_never_are() {
    let mut model = Model::new("gpt-2", &HELLO);
    let end = model.add("<|end|>", CONTROL);
    let think = model.add("<think>", USER_DEFINED);
    let unused = model.add("[PAD0]", UNUSED);
    let tokenizer = model.tokenizer();

    assert_eq!(tokenizer.encode("hello<|end|><think>", true), [260, end, think]);
    let plain = tokenizer.encode("<|end|><think>", false);
    assert_eq!((plain.len(), plain[7]), (8, think));
    assert!(!tokenizer.encode("[PAD0]", true).contains(&unused));
    assert!(tokenizer.is_control(end) && !tokenizer.is_control(think));
}

#[test]
fn of_added_tokens_the_first_in_the_text_wins_then_the_longest_then_the_lowest_id() {
    let mut model = Model::new("gpt-2", &HELLO);
    let short = model.add("<a", USER_DEFINED);
    let long = model.add("<a>", USER_DEFINED);
    model.add("><b", USER_DEFINED);
    model.add("<a>", USER_DEFINED);
    model.add("", USER_DEFINED);
    let tokenizer = model.tokenizer();
    assert_eq!(tokenizer.encode("<a<a><b", false), [short, long, u32::from(b'<'), u32::from(b'b')]);
}

#[test]
fn where_vocabulary_strings_repeat_the_first_counts() {
    let mut model = Model::new("gpt-2", &HELLO);
    model.add("hello", 1);
    model.merges.push("hell o".to_owned());
    assert_eq!(model.tokenizer().encode("hello", false), [260]);
}

#[test]
fn a_whole_piece_that_is_a_token_needs_no_merges_where_the_model_says_so() {
    for (pre, expected) in [("gpt-2", vec![258, u32::from(b's')]), ("llama-bpe", vec![261]), ("gpt-4o", vec![261])] {
        let mut model = Model::new(pre, &HELLO);
        model.add("hells", 1);
        assert_eq!(model.tokenizer().encode("hells", false), expected, "{pre}");
    }
}

#[test]
fn text_is_composed_where_the_model_was_trained_so() {
    for (pre, expected) in [("qwen2", vec![256]), ("olmo", vec![256]), ("gpt-2", vec![0x65, 0xcc, 0x81])] {
        let tokenizer = Model::new(pre, &["Ã ©"]).tokenizer();
        assert_eq!(tokenizer.encode("e\u{301}", false), expected, "{pre}");
    }
}

#[test]
fn a_byte_that_the_vocabulary_lacks_gives_the_unknown_token_or_nothing() {
    let mut model = Model::new("gpt-2", &HELLO);
    model.types[usize::from(b'x')] = UNUSED;
    assert_eq!(model.tokenizer().encode("hexa", false), [256, u32::from(b'a')]);
    model.special.unk = Some(model.add("<unk>", 2));
    assert_eq!(model.tokenizer().encode("hexa", false), [256, 261, u32::from(b'a')]);
}

#[test]
fn decoding_gives_bytes_and_hides_control_tokens_unless_they_are_to_be_shown() {
    let mut model = Model::new("gpt-2", &HELLO);
    let end = model.add("<|end|>", CONTROL);
    let spaces = model.add("   ", USER_DEFINED);
    let unused = model.add("[PAD0]", UNUSED);
    let tokenizer = model.tokenizer();
    let ids = [259, spaces, end, unused, 0xff, 9999];
    assert_eq!(tokenizer.decode(&ids, false), b" hell   \xff");
    assert_eq!(tokenizer.decode_text(&ids, true), " hell   <|end|>\u{fffd}");
    assert_eq!((tokenizer.token_bytes(unused), tokenizer.token_bytes(9999)), (Some(&b"[PAD0]"[..]), None));
}

#[test]
fn an_answer_ends_with_the_named_tokens_and_the_well_known_control_tokens() {
    let mut model = Model::new("gpt-2", &HELLO);
    let im_end = model.add("<|im_end|>", CONTROL);
    let end = model.add("<|end|>", CONTROL);
    let as_text = model.add("<|endoftext|>", 1);
    model.special.eos = Some(300 - 1);
    model.tokens.resize(300, "unused".to_owned());
    model.types.resize(300, UNUSED);
    let tokenizer = model.tokenizer();
    assert_eq!(tokenizer.end_ids(), [im_end, end, 299]);
    assert!(tokenizer.is_end(im_end) && !tokenizer.is_end(as_text));
}

#[test]
fn in_harmony_the_end_of_a_message_is_not_the_end_of_the_answer() {
    let mut model = Model::new("gpt-4o", &HELLO);
    model.add("<|end|>", CONTROL);
    let answer_ends = [model.add("<|return|>", CONTROL), model.add("<|call|>", CONTROL)];
    assert_eq!(model.tokenizer().end_ids(), answer_ends);
}

#[test]
fn tables_at_fault_are_refused_by_the_name_of_their_key() {
    let sound = Model::new("qwen2", &HELLO);
    let with = |change: fn(&mut Model)| {
        let mut model = sound.clone();
        change(&mut model);
        model.error()
    };
    let cases: [(&[&str], String); 8] = [
        (&["tokenizer.ggml.model", "llama"], with(|model| model.model = "llama")),
        (&["tokenizer.ggml.pre", "frob", "qwen2"], with(|model| model.pre = "frob")),
        (&["tokenizer.ggml.tokens", "missing"], with(|model| model.tokens.clear())),
        (&["tokenizer.ggml.token_type", "3", "261"], with(|model| model.types.truncate(3))),
        (&["tokenizer.ggml.merges", "missing"], with(|model| model.merges.clear())),
        (&["tokenizer.ggml.merges", "entry 2", "`hell`"], with(|model| model.merges[2] = "hell".to_owned())),
        (&["tokenizer.ggml.merges", "entry 0", "`ha`"], with(|model| model.merges[0] = "h a".to_owned())),
        (&["tokenizer.ggml.eos_token_id", "99999", "261"], with(|model| model.special.eos = Some(99999))),
    ];
    for (mentions, error) in cases {
        assert!(mentions.iter().all(|&mention| error.contains(mention)), "{error} mentions {mentions:?}");
    }
}

#[test]
fn a_file_without_token_types_has_normal_tokens_only() {
    let mut model = Model::new("gpt-2", &HELLO);
    model.types.clear();
    assert_eq!(model.tokenizer().encode("hello", true), [260]);
}

#[test]
fn a_vocabulary_without_tokens_is_an_error_of_its_own_kind() {
    let mut model = Model::new("gpt-2", &HELLO);
    model.tokens.clear();
    assert!(matches!(Tokenizer::new(model.tables()), Err(TokenizerError::NoTokens)));
}

/// Byte-pair encoding as it is defined: looks at all pairs for each merge.
fn encode_by_definition(merges: &[&str], piece: &str) -> Vec<String> {
    let mut parts: Vec<String> = piece.chars().map(String::from).collect();
    let rank = |left: &str, right: &str| merges.iter().position(|merge| *merge == format!("{left} {right}"));
    loop {
        let first = (1..parts.len()).filter_map(|i| Some((rank(&parts[i - 1], &parts[i])?, i))).min();
        let Some((_, i)) = first else { return parts };
        let right = parts.remove(i);
        parts[i - 1].push_str(&right);
    }
}

proptest! {
    /// Some merges give tokens that an earlier merge takes, so that ranks do not only rise while a piece is merged.
    #[test]
    fn short_and_long_pieces_are_merged_by_definition(piece in "[ab]{1,80}") {
        let merges = ["ab ab", "ba b", "a b", "b a", "aa aa", "a a", "ab a", "bab ab", "aaaa ab"];
        let model = Model::new("gpt-2", &merges);
        let vocab = Vocab::new(&model.tables()).unwrap();
        let merges_of_model = Merges::new(&model.tables().merges, &vocab, &TokenIndex::new(&vocab)).unwrap();
        let mut ids = Vec::new();
        merges_of_model.encode(piece.as_bytes(), None, &mut ids);
        let parts: Vec<&str> = ids.iter().map(|&id| std::str::from_utf8(vocab.bytes(id).unwrap()).unwrap()).collect();
        prop_assert_eq!(parts, encode_by_definition(&merges, &piece));
    }

    /// Long enough for the cache of pieces to be used.
    #[test]
    fn a_long_text_has_the_tokens_of_its_words(words in prop::collection::vec("[ehlo]{1,8}", 1200..1300)) {
        let tokenizer = Model::new("gpt-2", &HELLO).tokenizer();
        let words: Vec<String> = words.iter().map(|word| format!(" {word}")).collect();
        let one_by_one: Vec<u32> = words.iter().flat_map(|word| tokenizer.encode(word, false)).collect();
        prop_assert_eq!(tokenizer.encode(&words.concat(), false), one_by_one);
    }
}
