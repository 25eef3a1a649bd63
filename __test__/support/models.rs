//! The tiny models that tests run, and how to load them.

use clutor::model::{CacheType, LoadOptions, Model};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Folders with recorded answers, one for each architecture and tensor type.
#[allow(dead_code)] // Not every test that includes this file needs every function.
pub fn golden_folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("__test__/data/golden");
    let folders = std::fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut folders: Vec<PathBuf> =
        folders.map(|entry| entry.unwrap().path()).filter(|path| path.join("model.gguf").exists()).collect();
    folders.sort();
    assert!(folders.len() >= 17, "a folder for every tensor type, found {}", folders.len());
    folders
}

/// The trained model that ships with the project.
#[allow(dead_code)] // As above.
pub fn trained_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("npm/tiny-stories-moe/tiny-qwen3moe-Q4_K_M.gguf")
}

/// What llama.cpp answered on it.
#[allow(dead_code)] // As above.
pub fn trained_answers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("__test__/data/trained/tiny-qwen3moe-Q4_K_M")
}

/// Name of a model's folder.
#[allow(dead_code)] // As above.
pub fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

/// Loads `path` with an f32 cache.
#[allow(dead_code)] // As above.
pub fn load(path: &Path, kernels: &str, n_threads: usize) -> Model {
    load_with(path, kernels, n_threads, CacheType::F32)
}

/// Loads `path` with a cache of type `cache_type`.
#[allow(dead_code)] // As above.
pub fn load_with(path: &Path, kernels: &str, n_threads: usize, cache_type: CacheType) -> Model {
    let options =
        LoadOptions { n_threads: Some(n_threads), cache_type, kernels: Some(kernels.into()), ..LoadOptions::default() };
    Model::load(path, &options, &mut |_| ControlFlow::Continue(()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of the kernel paths that this processor has.
#[allow(dead_code)] // As above.
pub fn kernel_paths() -> Vec<&'static str> {
    clutor::kernels::available().iter().map(|path| path.name()).collect()
}

/// Bytes of a cache that holds `per_cent` of the experts of the model at `path`.
#[allow(dead_code)] // As above.
pub fn cache_bytes_for(path: &Path, per_cent: usize) -> u64 {
    let plan = |cache_bytes| {
        let options = LoadOptions { cache_bytes: Some(cache_bytes), ..LoadOptions::default() };
        Model::plan_for(path, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (least, most) = (plan(0), plan(u64::MAX));
    let slot_bytes = (most.expert_bytes - least.expert_bytes) / (most.cached_experts - least.cached_experts) as u64;
    let n_slots = most.n_experts * per_cent / 100;
    let cache_bytes = n_slots as u64 * slot_bytes;
    assert_eq!(plan(cache_bytes).cached_experts, n_slots, "{per_cent} % of the experts are cached");
    cache_bytes
}
