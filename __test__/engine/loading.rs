//! Files that are sound GGUF and still not a model that can run, or one that runs in an unusual shape.

#[path = "../support/copy.rs"]
mod copy;
#[path = "../support/gguf_writer.rs"]
mod gguf_writer;
#[path = "../support/models.rs"]
mod models;

use clutor::generate::logits;
use clutor::model::{LoadOptions, Model, ModelError, Residency};
use copy::{copy_of, remove, set};
use gguf_writer::{GgufWriter, STRING, Tensor, U32, string};
use models::golden_folders;
use std::ops::ControlFlow;
use std::path::PathBuf;

const BOOL: u32 = 7;
const FLOAT32: u32 = 6;

fn base() -> GgufWriter {
    copy_of(&file("qwen3moe-base"))
}

fn file(name: &str) -> PathBuf {
    golden_folders().into_iter().find(|folder| folder.ends_with(name)).unwrap().join("model.gguf")
}

fn load(writer: &GgufWriter, options: &LoadOptions) -> Result<Model, ModelError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    writer.write(&path);
    Model::load(&path, options, &mut |_| ControlFlow::Continue(()))
}

fn error(change: impl FnOnce(&mut GgufWriter)) -> String {
    let mut writer = base();
    change(&mut writer);
    load(&writer, &LoadOptions::default()).expect_err("the file is wrong").to_string()
}

fn answers(writer: &GgufWriter) -> Vec<f32> {
    let model = load(writer, &LoadOptions::default()).unwrap();
    logits(&model, &[104, 101, 108, 108, 111], 8, &|| false, &mut |_| {}).unwrap().logits
}

fn number(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

#[test]
fn a_key_that_is_missing_wrong_or_implausible_is_named() {
    let key = |key: &'static str, ty: u32, value: Vec<u8>| move |file: &mut GgufWriter| set(file, key, ty, value);
    assert!(error(|file| remove(file, "general.architecture")).contains("general.architecture"));
    assert!(error(|file| remove(file, "qwen3moe.block_count")).contains("qwen3moe.block_count"));
    assert!(error(key("qwen3moe.block_count", STRING, string("2"))).contains("qwen3moe.block_count"));
    for (name, value) in [
        ("qwen3moe.expert_count", 0),
        ("qwen3moe.expert_count", 1 << 31),
        ("qwen3moe.expert_used_count", 0),
        ("qwen3moe.expert_used_count", 5),
        ("qwen3moe.embedding_length", 0),
        ("qwen3moe.attention.head_count_kv", 3),
        ("qwen3moe.attention.key_length", 63),
        ("qwen3moe.attention.value_length", 32),
    ] {
        let message = error(key(name, U32, number(value)));
        assert!(message.contains(name) && message.contains(&value.to_string()), "{name} = {value}: {message}");
    }
    assert!(error(key("qwen3moe.rope.freq_base", FLOAT32, f32::NAN.to_le_bytes().to_vec())).contains("rope.freq_base"));
    assert!(error(key("qwen3moe.rope.scaling.type", STRING, string("longrope"))).contains("longrope"));
    assert!(error(key("qwen3moe.rope.scaling.attn_factor", FLOAT32, number(0))).contains("attn_factor"));
}

#[test]
fn an_architecture_that_is_not_supported_is_refused_with_those_that_are() {
    let message = error(|file| set(file, "general.architecture", STRING, string("frobnicate")));
    assert_eq!(message, "the architecture `frobnicate` is not supported; supported are olmoe, qwen3moe");
}

#[test]
fn a_tensor_that_is_missing_misshapen_or_unknown_is_named() {
    let without =
        |name: &'static str| move |file: &mut GgufWriter| file.tensors.retain(|tensor| tensor.name != name.as_bytes());
    for name in ["token_embd.weight", "blk.0.ffn_gate_inp.weight", "blk.1.ffn_down_exps.weight", "output_norm.weight"] {
        let message = error(without(name));
        assert!(message.contains(name) && message.contains("missing"), "{message}");
    }
    assert!(error(|file| set(file, "qwen3moe.block_count", U32, number(3))).contains("`blk.2."));
    assert!(error(|file| set(file, "qwen3moe.expert_feed_forward_length", U32, number(512))).contains("_exps.weight"));
    let bias = |file: &mut GgufWriter| *file = file.clone().tensor("blk.1.attn_q.bias", &[256], gguf_writer::F32);
    assert!(error(bias).contains("`blk.1.attn_q.bias` is not part of the architecture"));
}

#[test]
fn a_vocabulary_that_cannot_be_read_is_refused_and_none_at_all_leaves_ids() {
    assert!(error(|file| set(file, "tokenizer.ggml.pre", STRING, string("frob"))).contains("frob"));
    assert!(error(|file| remove(file, "tokenizer.ggml.merges")).contains("tokenizer.ggml.merges"));
    assert!(error(|file| set(file, "tokenizer.ggml.tokens", U32, number(5))).contains("tokenizer.ggml.tokens"));
    let mut writer = base();
    remove(&mut writer, "tokenizer.ggml.tokens");
    let model = load(&writer, &LoadOptions::default()).unwrap();
    assert!(model.tokenizer().unwrap_err().to_string().contains("tokenizer.ggml.tokens"));
    assert_eq!(answers(&writer), answers(&base()));
}

#[test]
fn defaults_stand_in_for_keys_that_files_leave_out() {
    let mut writer = base();
    for key in ["rope.freq_base", "attention.key_length", "attention.value_length"] {
        remove(&mut writer, &format!("qwen3moe.{key}"));
    }
    assert_eq!(answers(&writer), answers(&base()));
}

#[test]
fn weights_of_experts_follow_the_keys_that_state_their_norm_and_scale() {
    let mut unnormed = base();
    set(&mut unnormed, "qwen3moe.expert_weights_norm", BOOL, vec![0]);
    assert_ne!(answers(&unnormed), answers(&base()));
    let mut scaled = base();
    set(&mut scaled, "qwen3moe.expert_weights_scale", FLOAT32, 2.0f32.to_le_bytes().to_vec());
    assert_ne!(answers(&scaled), answers(&base()));
    set(&mut scaled, "qwen3moe.expert_weights_scale", FLOAT32, number(0));
    assert_eq!(answers(&scaled), answers(&base()));
}

#[test]
fn one_tensor_for_each_expert_reads_the_same_as_fused_ones() {
    let mut apart = base();
    for tensor in std::mem::take(&mut apart.tensors) {
        let name = String::from_utf8(tensor.name.clone()).unwrap();
        let Some(stem) = name.strip_suffix("_exps.weight") else {
            apart.tensors.push(tensor);
            continue;
        };
        let n_experts = tensor.dims[2] as usize;
        for (expert, content) in tensor.content.chunks_exact(tensor.content.len() / n_experts).enumerate() {
            let name = format!("{stem}.{expert}.weight").into();
            let (dims, content) = (tensor.dims[..2].to_vec(), content.to_vec());
            apart.tensors.push(Tensor { name, dims, ty: tensor.ty, content, offset: None });
        }
    }
    assert_eq!(answers(&apart), answers(&base()));
}

#[test]
fn a_huge_trained_context_costs_no_memory_and_a_longer_one_than_trained_is_capped() {
    let mut writer = base();
    set(&mut writer, "qwen3moe.context_length", U32, number(u32::MAX));
    let model = load(&writer, &LoadOptions::default()).unwrap();
    assert!(model.n_ctx() < u32::MAX as usize && model.n_ctx() > 512);
    let options = LoadOptions { n_ctx: Some(1 << 20), ..LoadOptions::default() };
    assert_eq!(load(&base(), &options).unwrap().n_ctx(), 512);
}

#[test]
fn loading_reports_its_progress_and_can_be_broken_off() {
    let mut seen = Vec::new();
    Model::load(&file("olmoe-base"), &LoadOptions::default(), &mut |progress| {
        seen.push(progress);
        ControlFlow::Continue(())
    })
    .unwrap();
    let last = seen.last().unwrap();
    assert_eq!(last.done_bytes, last.total_bytes);
    let broken = Model::load(&file("olmoe-base"), &LoadOptions::default(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(broken, Err(ModelError::Cancelled)));
}

#[test]
fn a_mapped_a_copied_and_a_self_chosen_model_give_the_same_logits_and_tell_all_of_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    base().write(&path);
    let tokens = [104, 101, 108, 108, 111];
    let answers = |residency| {
        let mut told = Vec::new();
        let mut progress = |progress: clutor::model::LoadProgress| {
            told.push(progress);
            ControlFlow::Continue(())
        };
        let model = Model::load(&path, &LoadOptions { residency, ..LoadOptions::default() }, &mut progress).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!(told.is_sorted_by_key(|progress| progress.done_bytes));
        assert_eq!(told.last().map(|last| (last.done_bytes, last.total_bytes)), Some((bytes, bytes)));
        logits(&model, &tokens, 8, &|| false, &mut |_| {}).unwrap().logits
    };
    let mapped = answers(Residency::Map);
    assert_eq!(answers(Residency::Copy), mapped);
    // Large enough that the engine looks at what pages it gets, and of no whole number of them.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((150 << 20) + 1234).unwrap();
    assert_eq!(answers(Residency::Auto), mapped);
    assert_eq!(answers(Residency::Copy), mapped);
    assert_eq!(answers(Residency::Map), mapped);
}

#[test]
fn kernels_that_the_processor_lacks_are_refused_with_those_that_it_has() {
    let options = LoadOptions { kernels: Some("mmx".into()), ..LoadOptions::default() };
    let message = load(&base(), &options).unwrap_err().to_string();
    assert!(message.contains("`mmx`") && message.contains("scalar"), "{message}");
}
