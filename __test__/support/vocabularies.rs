//! The vocabularies of real models, and texts to try them on.

use clutor::tokenizer::{SpecialIds, Tables, Tokenizer};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::PathBuf;

/// Names of vocabularies in the cases. The first two are always there.
pub const VOCABULARIES: [&str; 5] = ["qwen3", "olmo", "gpt-oss", "deepseek", "llama3"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("__test__/data/tokenizer").join(name)
}

/// The cases of a file, one a line.
pub fn cases(name: &str) -> Vec<Value> {
    let lines = fs::read_to_string(path(name)).expect("the cases are in the repository");
    lines.lines().map(|line| serde_json::from_str(line).expect("a case is a line of JSON")).collect()
}

/// The tables of a vocabulary, or `None` where it is not in the repository and was not put there.
pub fn tables_of(vocabulary: &str) -> Option<Value> {
    let file = path(&format!("vocab-{vocabulary}.json.gz"));
    if !file.exists() {
        assert!(!VOCABULARIES[..2].contains(&vocabulary), "{} is missing", file.display());
        return None;
    }
    let mut text = String::new();
    let mut reader = GzDecoder::new(BufReader::new(File::open(&file).expect("a readable file")));
    reader.read_to_string(&mut text).expect("a whole gzip file");
    Some(serde_json::from_str(&text).expect("tables in JSON"))
}

/// The tokenizer that `tables` describe.
pub fn tokenizer_from(tables: &Value) -> Tokenizer {
    let bytes = |key: &str| list(&tables[key]).iter().map(|text| string(text).as_bytes()).collect();
    let id = |key: &str| tables[key].as_u64().map(|id| id as u32);
    let special = SpecialIds { bos: id("bos"), eos: id("eos"), pad: id("pad"), ..SpecialIds::default() };
    Tokenizer::new(Tables {
        model: string(&tables["model"]),
        pre: string(&tables["pre"]),
        tokens: bytes("tokens"),
        token_types: list(&tables["types"]).iter().map(|kind| number(kind) as i32).collect(),
        merges: bytes("merges"),
        special,
    })
    .expect("tables of a real model")
}

#[allow(dead_code)] // Not every program that includes this file needs it.
pub fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// The text of a case as bytes; not UTF-8 where it says `hex`.
pub fn text_of(case: &Value) -> Vec<u8> {
    match (&case["hex"], &case["repeat"]) {
        (Value::String(hex), _) => unhex(hex),
        (_, Value::Object(repeat)) => string(&repeat["repeat"]).repeat(number(&repeat["n"]) as usize).into_bytes(),
        _ => string(&case["text"]).as_bytes().to_vec(),
    }
}

pub fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

pub fn string(value: &Value) -> &str {
    value.as_str().expect("a string")
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}
