//! The tokenizer on texts that broke other programs, against the models' own tokenizers.
//!
//! The cases and where they come from are described in `__test__/data/tokenizer/README.md`.

#[path = "../support/vocabularies.rs"]
mod vocabularies;

use std::time::{Duration, Instant};

use clutor::tokenizer::{StreamDecoder, Tokenizer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use vocabularies::{VOCABULARIES, cases, list, number, string, tables_of, text_of, tokenizer_from, unhex};

/// A long run must not take longer than this.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// All vocabularies that are there.
fn tokenizers() -> impl Iterator<Item = (&'static str, Tokenizer)> {
    VOCABULARIES.into_iter().filter_map(|name| Some((name, tokenizer_from(&tables_of(name)?))))
}

fn ids(value: &Value) -> Vec<u32> {
    list(value).iter().map(|id| number(id) as u32).collect()
}

#[test]
fn texts_get_the_ids_that_the_models_were_trained_with() {
    let cases = cases("tokenizer_cases.jsonl");
    assert_eq!(cases.len(), 257);
    for (vocabulary, tokenizer) in tokenizers() {
        let (mut passed, mut failed) = (0, Vec::new());
        for case in &cases {
            let text = text_of(case);
            let expect = &case["expect"][vocabulary];
            let started = Instant::now();
            let with_control = tokenizer.encode_bytes(&text, true);
            let without_control = tokenizer.encode_bytes(&text, false);
            assert!(started.elapsed() < 2 * TIME_LIMIT, "{} took {:?}", case["id"], started.elapsed());
            let plain = expect.get("plain").unwrap_or(&expect["ids"]);
            let is_right = match expect.get("sha256") {
                None => with_control == ids(&expect["ids"]) && without_control == ids(plain),
                Some(digest) => {
                    let joined = with_control.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                    with_control == without_control
                        && with_control.len() as u64 == number(&expect["n"])
                        && sha256(joined.as_bytes()) == string(digest)
                }
            };
            if is_right {
                passed += 1;
            } else {
                failed
                    .push(format!("{case}\n  gave {with_control:.80?}, without control tokens {without_control:.80?}"));
            }
        }
        println!("{vocabulary}: {passed} of {} texts right", cases.len());
        assert!(failed.is_empty(), "{vocabulary}: {} texts wrong:\n{}", failed.len(), failed.join("\n"));
    }
}

#[test]
fn ids_become_the_bytes_and_the_streamed_text_of_the_cases() {
    let cases = cases("decode_cases.jsonl");
    assert_eq!(cases.len(), 179);
    for (vocabulary, tokenizer) in tokenizers() {
        let mut passed = 0;
        for case in cases.iter().filter(|case| case["tokenizer"] == vocabulary) {
            let show_special = case.get("special_shown").is_none_or(|shown| shown == true);
            let ids = ids(&case["ids"]);
            assert_eq!(tokenizer.decode(&ids, show_special), unhex(string(&case["bytes"])), "{case}");

            let mut decoder = StreamDecoder::default();
            for (&id, text) in ids.iter().zip(list(&case["stream"])) {
                assert_eq!(decoder.push(tokenizer.text_bytes(id, show_special)), string(text), "{case}");
            }
            assert_eq!(decoder.finish(), string(&case["flush"]), "{case}");
            passed += 1;
        }
        println!("{vocabulary}: {passed} lists of ids right");
        assert!(passed >= 35, "{vocabulary}: only {passed} cases found");
    }
}

#[test]
fn what_is_encoded_decodes_to_the_same_text() {
    let cases = cases("tokenizer_cases.jsonl");
    for (vocabulary, tokenizer) in tokenizers() {
        for case in cases.iter().filter(|case| case["expect"][vocabulary].get("without_nfc").is_none()) {
            let text = String::from_utf8_lossy(&text_of(case)).into_owned();
            assert_eq!(
                tokenizer.decode_text(&tokenizer.encode(&text, true), true),
                text,
                "{vocabulary}, {}",
                case["id"]
            );
        }
    }
}

#[test]
fn long_texts_take_time_in_proportion_to_their_length() {
    for (vocabulary, tokenizer) in tokenizers() {
        for unit in ["a", " ", "\n", "!?", "aB", "7", "\u{301}", "e\u{301}", "中", "\u{200d}", "\0", "<|", "'s", " \n"]
        {
            let text = unit.repeat(1_000_000 / unit.len());
            let started = Instant::now();
            let ids = tokenizer.encode(&text, true);
            let took = started.elapsed();
            assert!(!ids.is_empty());
            assert!(took < TIME_LIMIT, "{vocabulary}: 1 MB of {unit:?} took {took:?}");
        }
    }
}

/// The digest in hexadecimal: the cases hold those of long lists of ids.
fn sha256(message: &[u8]) -> String {
    Sha256::digest(message).iter().map(|byte| format!("{byte:02x}")).collect()
}
