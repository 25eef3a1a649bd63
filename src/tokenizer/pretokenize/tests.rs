//! The scanners against the expressions that they cite, run by a regex engine.

use std::sync::LazyLock;

use fancy_regex::Regex;
use proptest::prelude::*;

use super::PreTokenizer;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"##,
        r"\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

static ALL: LazyLock<[(PreTokenizer, Vec<Regex>); 5]> = LazyLock::new(|| {
    let compiled = |expressions: &[&str]| -> Vec<Regex> {
        expressions.iter().map(|expression| Regex::new(expression).expect("a cited expression")).collect()
    };
    [
        (PreTokenizer::Gpt2, compiled(&[GPT2])),
        (PreTokenizer::Qwen2, compiled(&[QWEN2])),
        (PreTokenizer::Llama3, compiled(&[LLAMA3])),
        (PreTokenizer::Gpt4o, compiled(&[O200K])),
        (PreTokenizer::DeepSeek3, compiled(&DEEPSEEK)),
    ]
});

fn scanned(pre: PreTokenizer, text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    pre.split(text, |piece| pieces.push(&text[piece]));
    pieces
}

/// Cuts with each expression in turn; matches and what lies between them are pieces.
fn by_regex<'t>(expressions: &[Regex], text: &'t str) -> Vec<&'t str> {
    let mut pieces = vec![text];
    for expression in expressions {
        let mut cut = Vec::new();
        for piece in pieces {
            let mut done = 0;
            for found in expression.find_iter(piece) {
                let found = found.expect("a short text does not exhaust the engine");
                cut.extend([&piece[done..found.start()], found.as_str()].into_iter().filter(|part| !part.is_empty()));
                done = found.end();
            }
            cut.extend(Some(&piece[done..]).filter(|part| !part.is_empty()));
        }
        pieces = cut;
    }
    pieces
}

/// Characters that the patterns treat in different ways, several of each class.
fn telling_characters() -> impl Strategy<Value = char> {
    let pool: Vec<char> = concat!(
        "aAzZstmdrevlSTMDREVL''''ſK     \t\n\r\u{b}\u{85}\u{a0}\u{2028}\u{3000}",
        "019²½Ⅷ٣𝟘/!-$|<.\"“”€😀éßΑωЖǅʰªºאا中龥龦ぁん゛ー・가ไ𝒜𐐀𐐨",
        "\u{300}\u{301}\u{903}\u{20dd}\u{fe0f}\u{200d}\u{0}\u{7f}\u{1c}\u{1f}\u{ad}\u{200b}\u{feff}\u{e000}\u{378}\u{10ffff}",
    )
    .chars()
    .collect();
    prop_oneof![8 => prop::sample::select(pool), 1 => any::<char>()]
}

#[test]
fn every_character_has_the_classes_that_the_expressions_see() {
    // All of the planes with scripts and signs; some of the others, which hold nothing but ideographs, private use
    // and a few hundred format characters.
    let dense = ('\0'..='\u{1ffff}').chain('\u{e0000}'..='\u{e01ff}');
    for character in dense.chain(('\u{20000}'..=char::MAX).step_by(211)) {
        // After a letter, doubled, before a digit and after a space: each class gives other pieces.
        let text = format!("a{character}{character}1 {character}");
        for (pre, expressions) in ALL.iter() {
            let wanted = by_regex(expressions, &text);
            assert_eq!(scanned(*pre, &text), wanted, "{pre:?}, {character:?} (U+{:04X})", character as u32);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_text_is_cut_as_the_expressions_cut_it(characters in prop::collection::vec(telling_characters(), 0..24)) {
        let text: String = characters.into_iter().collect();
        for (pre, expressions) in ALL.iter() {
            prop_assert_eq!(scanned(*pre, &text), by_regex(expressions, &text), "{:?}", pre);
        }
    }
}

#[test]
fn contractions_are_pieces_in_the_cases_that_the_pattern_names() {
    assert_eq!(scanned(PreTokenizer::Gpt2, "it's IT'S"), ["it", "'s", " IT", "'", "S"]);
    assert_eq!(scanned(PreTokenizer::Qwen2, "it's IT'S"), ["it", "'s", " IT", "'S"]);
    assert_eq!(scanned(PreTokenizer::Gpt4o, "it's IT'S"), ["it's", " IT'S"]);
    assert_eq!(scanned(PreTokenizer::DeepSeek3, "it's IT'S"), ["it", "'s", " IT", "'S"]);
}

#[test]
fn camel_case_is_cut_before_capitals() {
    assert_eq!(scanned(PreTokenizer::Gpt4o, "camelCase XMLHttp"), ["camel", "Case", " XMLHttp"]);
    assert_eq!(scanned(PreTokenizer::Qwen2, "camelCase"), ["camelCase"]);
}

#[test]
fn the_last_space_goes_with_the_word() {
    for (pre, _) in ALL.iter() {
        assert_eq!(scanned(*pre, "a   b  "), ["a", "  ", " b", "  "], "{pre:?}");
    }
}
