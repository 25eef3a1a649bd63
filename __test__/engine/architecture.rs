//! Holds the modules to the picture in `ARCHITECTURE.md`: each uses only what is listed here.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules, and the ones that each may name as `crate::…`.
const ARROWS: &[(&str, &[&str])] = &[
    ("quant", &[]),
    ("math", &[]),
    ("parallel", &[]),
    ("tokenizer", &[]),
    ("guard", &[]),
    ("chat", &[]),
    ("gguf", &["quant"]),
    ("kernels", &["quant", "math"]),
    ("routing", &["math"]),
    ("sampling", &["math"]),
    ("store", &["gguf"]),
    ("store/policy", &[]),
    ("experts", &["gguf", "quant", "store"]),
    ("model", &["gguf", "quant", "kernels", "math", "routing", "experts", "store", "parallel", "tokenizer", "guard"]),
    ("generate", &["model", "sampling", "tokenizer", "parallel", "routing", "guard", "workload"]),
    ("workload", &["store", "routing"]),
    ("stream", &["model", "workload", "store", "experts", "gguf", "quant", "kernels", "parallel"]),
    ("bench", &["model", "stream", "store", "gguf", "routing", "parallel", "guard"]),
    (
        "node",
        &[
            "model",
            "chat",
            "generate",
            "stream",
            "bench",
            "workload",
            "gguf",
            "tokenizer",
            "sampling",
            "kernels",
            "quant",
            "experts",
            "routing",
            "store",
            "workload",
            "guard",
        ],
    ),
];

#[test]
fn modules_use_only_what_the_list_of_arrows_allows() {
    let mut wrong = Vec::new();
    for (module, allowed) in ARROWS {
        for file in rust_files(&source().join(module)) {
            for used in used_modules(&fs::read_to_string(&file).unwrap()) {
                if used != *module && !allowed.contains(&used.as_str()) {
                    wrong.push(format!("{}: {module} may not use {used}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_folder_of_the_source_is_in_the_list_and_every_entry_is_a_folder() {
    let mut folders: Vec<String> = fs::read_dir(source())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    // Modules within modules are listed to hold them to less; their folders are not at the top.
    let top = ARROWS.iter().map(|(module, _)| *module).filter(|module| !module.contains('/'));
    let mut listed: Vec<String> = top.map(str::to_owned).collect();
    folders.sort();
    listed.sort();
    assert_eq!(folders, listed);
}

#[test]
fn only_the_binding_knows_of_node() {
    let name = concat!("na", "pi");
    for file in rust_files(&source()) {
        if !file.starts_with(source().join("node")) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains(name), "{} mentions {name}", file.display());
        }
    }
}

#[test]
fn files_stay_readable() {
    // Tables are exempt: they are looked things up in, not read.
    let is_table = |file: &Path| file.file_stem().is_some_and(|stem| stem.to_string_lossy().contains("table"));
    for file in rust_files(&source()).into_iter().filter(|file| !is_table(file)) {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 600, "{} has {lines} lines; split it by what is owned", file.display());
    }
}

#[test]
fn uses_are_found_in_every_form() {
    let text = "use crate::{gguf, model::{self, Model}};\nuse crate::quant::TensorType;\n/// See [`crate::math::silu`].\n\
                // crate::comment\nlet x = crate::kernels::best();\nuse crate::{generate::{A, B}, sampling};";
    assert_eq!(used_modules(text), ["gguf", "model", "quant", "kernels", "generate", "sampling"]);
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// First names of all `crate::` paths outside comments, groups in braces included.
fn used_modules(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut used = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            None => used.push(first_name(rest)),
            Some(group) => {
                // Names at depth one of the group are modules.
                let (mut depth, mut begins) = (1, true);
                for (i, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => begins = true,
                        c if begins && c.is_alphabetic() => {
                            used.push(first_name(&group[i..]));
                            begins = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    used
}

fn first_name(path: &str) -> String {
    path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}
