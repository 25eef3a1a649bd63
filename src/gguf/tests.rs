//! What opens, what does not, and what the errors say.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::writer::{self, GgufWriter};
use super::*;
use crate::quant::TensorType;

/// A folder with the file `model.gguf`.
fn folder_with(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn open(writer: &GgufWriter) -> Gguf {
    let (_folder, path) = folder_with(&writer.bytes());
    Gguf::open(&path).unwrap()
}

fn message_of(bytes: &[u8]) -> String {
    let (_folder, path) = folder_with(bytes);
    Gguf::open(&path).unwrap_err().to_string()
}

#[track_caller]
fn assert_says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn a_file_tells_its_metadata_and_tensors() {
    let gguf = open(&GgufWriter::tiny_moe());
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.metadata().require_str("general.architecture").unwrap(), "qwen3moe");
    assert_eq!(gguf.metadata().require_u32("qwen3moe.expert_count").unwrap(), 4);
    assert_eq!(gguf.metadata().iter().next().unwrap().0, "general.architecture");
    let tokens = gguf.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.get(2), Some(&b"ab"[..]));

    let up = gguf.tensor("blk.1.ffn_up_exps.weight").unwrap();
    assert_eq!(up.shape, [4, 32, 64]);
    assert_eq!(up.ty, TensorType::Q8_0);
    assert_eq!(up.bytes, 4 * 32 * 64 / 32 * 34);
    assert_eq!(gguf.tensor("blk.2.ffn_up_exps.weight"), None);
}

#[test]
fn mapped_tensors_hold_the_bytes_of_the_file() {
    let writer = GgufWriter::tiny_moe();
    let gguf = open(&writer);
    let mapped = gguf.map().unwrap();
    for (info, written) in gguf.tensors().iter().zip(&writer.tensors) {
        assert_eq!(mapped.tensor_bytes(info), written.content, "{}", info.name);
        let mut read = vec![0; info.bytes as usize];
        gguf.shards()[info.shard].read_exact_at(&mut read, info.offset).unwrap();
        assert_eq!(read, written.content, "{}", info.name);
    }
}

#[test]
fn unusual_but_valid_files_open() {
    let tiny = GgufWriter::tiny_moe;
    let nested = writer::array(
        writer::ARRAY,
        &[
            writer::array(writer::U32, &[7u32.to_le_bytes().into()]),
            writer::array(writer::STRING, &[writer::string("x")]),
        ],
    );
    let mut reversed = tiny();
    reversed.tensors.reverse();
    let cases = [
        ("version 2", GgufWriter { version: 2, ..tiny() }),
        ("alignment 64", GgufWriter { alignment: 64, ..tiny() }.u32("general.alignment", 64)),
        (
            "alignment as u64",
            GgufWriter { alignment: 64, ..tiny() }.entry("general.alignment", 10, 64u64.to_le_bytes()),
        ),
        ("alignment 1", GgufWriter { alignment: 1, ..tiny() }.u32("general.alignment", 1)),
        ("no final padding", GgufWriter { final_padding: false, ..tiny() }),
        ("nested arrays", tiny().entry("some.key", writer::ARRAY, nested)),
        ("tensors in another order", reversed),
        ("an extra tensor", tiny().tensor("foo.bar", &[32], writer::F32)),
        ("a tensor of no dimensions", tiny().edit("blk.0.attn_norm.weight", |t| t.dims.clear())),
        ("split into one", tiny().split(&[13]).remove(0)),
        ("joined from shards", tiny().entry("split.count", 2, [0, 0])),
        ("no tensors and no keys", GgufWriter::new()),
    ];
    for (case, writer) in cases {
        let gguf = open(&writer);
        assert_eq!(gguf.tensors().len(), writer.tensors.len(), "{case}");
        let mapped = gguf.map().unwrap();
        for written in &writer.tensors {
            let info = gguf.tensor(std::str::from_utf8(&written.name).unwrap()).unwrap();
            let bytes = mapped.tensor_bytes(info);
            assert_eq!(bytes, &written.content[..bytes.len()], "{case}: {}", info.name);
        }
    }
}

#[test]
fn all_value_types_are_read() {
    let writer = GgufWriter::new()
        .entry("u8", 0, [200])
        .entry("i8", 1, [0xff])
        .entry("u16", 2, 40_000u16.to_le_bytes())
        .entry("i16", 3, (-2i16).to_le_bytes())
        .u32("u32", 4_000_000_000)
        .entry("i32", 5, (-3i32).to_le_bytes())
        .entry("f32", 6, 0.5f32.to_le_bytes())
        .entry("bool", 7, [1])
        .string("string", b"caf\xe9")
        .entry("array", 9, writer::array(5, &[1i32.to_le_bytes().into(), (-1i32).to_le_bytes().into()]))
        .entry("u64", 10, u64::MAX.to_le_bytes())
        .entry("i64", 11, (-4i64).to_le_bytes())
        .entry("f64", 12, 0.25f64.to_le_bytes());
    let gguf = open(&writer);
    let metadata = gguf.metadata();
    let values: Vec<_> = metadata.iter().map(|(_, value)| value.clone()).collect();
    assert_eq!(values[0], Value::U8(200));
    assert_eq!(values[1], Value::I8(-1));
    assert_eq!(values[2], Value::U16(40_000));
    assert_eq!(values[3], Value::I16(-2));
    assert_eq!(values[4], Value::U32(4_000_000_000));
    assert_eq!(values[5], Value::I32(-3));
    assert_eq!(values[6], Value::F32(0.5));
    assert_eq!(values[7], Value::Bool(true));
    assert_eq!(values[8], Value::String(Box::from(&b"caf\xe9"[..])));
    assert_eq!(metadata.get_i32s("array").unwrap().unwrap(), [1, -1]);
    assert_eq!(values[10], Value::U64(u64::MAX));
    assert_eq!(values[11], Value::I64(-4));
    assert_eq!(values[12], Value::F64(0.25));
}

#[test]
fn integers_of_any_width_are_taken_if_they_fit() {
    let gguf = open(
        &GgufWriter::new()
            .entry("small", 0, [7])
            .entry("signed", 5, 7i32.to_le_bytes())
            .entry("wide", 10, 7u64.to_le_bytes())
            .entry("negative", 5, (-1i32).to_le_bytes())
            .entry("huge", 10, (1u64 << 40).to_le_bytes()),
    );
    let metadata = gguf.metadata();
    for key in ["small", "signed", "wide"] {
        assert_eq!(metadata.get_u32(key).unwrap(), Some(7), "{key}");
        assert_eq!(metadata.get_f32(key).unwrap(), Some(7.0), "{key}");
    }
    assert_says(&metadata.get_u32("negative").unwrap_err().to_string(), &["negative", "-1", "u32"]);
    assert_says(&metadata.get_u32("huge").unwrap_err().to_string(), &["huge", "1099511627776", "u32"]);
    assert_eq!(metadata.get_u64("huge").unwrap(), Some(1 << 40));
}

#[test]
fn a_value_of_the_wrong_type_is_an_error_that_names_both_types() {
    let gguf = open(&GgufWriter::tiny_moe().string("count", "2"));
    let metadata = gguf.metadata();
    let cases = [
        (metadata.get_u32("count").unwrap_err(), ["count", "string", "u32"]),
        (metadata.get_f32("count").unwrap_err(), ["count", "string", "f32"]),
        (metadata.get_bool("count").unwrap_err(), ["count", "string", "bool"]),
        (metadata.get_array("count").unwrap_err(), ["count", "string", "array"]),
        (metadata.get_str("qwen3moe.expert_count").unwrap_err(), ["expert_count", "u32", "string"]),
        (metadata.get_u32s("tokenizer.ggml.tokens").unwrap_err(), ["tokens", "array of string", "array of u32"]),
    ];
    for (error, words) in cases {
        assert_says(&error.to_string(), &words);
    }
}

#[test]
fn an_absent_key_is_none_or_an_error_that_names_it() {
    let gguf = open(&GgufWriter::new());
    assert_eq!(gguf.metadata().get_u32("qwen3moe.block_count").unwrap(), None);
    let error = gguf.metadata().require_u32("qwen3moe.block_count").unwrap_err();
    assert_says(&error.to_string(), &["model.gguf", "qwen3moe.block_count", "missing"]);
}

#[test]
fn bytes_that_are_not_utf8_do_not_stop_the_load() {
    let gguf = open(&GgufWriter::tiny_moe().string("general.basename", b"caf\xe9 \xff").entry(
        b"k\xff",
        writer::STRING,
        writer::string("v"),
    ));
    assert_eq!(gguf.metadata().get_bytes("general.basename").unwrap(), Some(&b"caf\xe9 \xff"[..]));
    assert_eq!(gguf.metadata().get_str("general.basename").unwrap().unwrap(), "caf\u{fffd} \u{fffd}");
}

#[test]
fn what_is_not_a_gguf_file_is_told_by_its_first_bytes() {
    assert_says(&message_of(b""), &["truncated", "0 bytes"]);
    assert_says(&message_of(b"<!DOCTYPE html><html>"), &["not a GGUF", "<!DO", "web page"]);
    assert_says(&message_of(b"version https://git-lfs.github.com/spec/v1"), &["not a GGUF", "LFS"]);
    assert_says(&message_of(b"tjggxxxxxxxxxxxx"), &["not a GGUF", "older"]);
    assert_says(&message_of(b"GGUF\0\0\0\x03aaaaaaaaaaaaaaaaaaaaaa"), &["big-endian"]);
    assert_says(&message_of(&GgufWriter { version: 1, ..GgufWriter::tiny_moe() }.bytes()), &["version 1"]);
    assert_says(&message_of(&GgufWriter { version: 4, ..GgufWriter::tiny_moe() }.bytes()), &["version 4"]);
}

#[test]
fn a_missing_file_and_a_folder_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let absent = Gguf::open(&folder.path().join("absent.gguf")).unwrap_err().to_string();
    assert_says(&absent, &["absent.gguf", "cannot open"]);
    assert_says(&Gguf::open(folder.path()).unwrap_err().to_string(), &["not a regular file"]);
}

#[test]
fn a_file_cut_anywhere_before_the_end_of_its_last_tensor_is_an_error() {
    let writer = GgufWriter { final_padding: false, ..GgufWriter::tiny_moe() };
    let bytes = writer.bytes();
    let header = writer.header().len();
    let (_folder, path) = folder_with(&bytes);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for cut in (0..header).chain((header..bytes.len()).step_by(997)).rev() {
        file.set_len(cut as u64).unwrap();
        let message = Gguf::open(&path).unwrap_err().to_string();
        let told = ["truncated", "beyond the end"].iter().any(|words| message.contains(words));
        assert!(told, "cut at {cut}: {message}");
    }
}

#[test]
fn wrong_headers_are_named() {
    let tiny = GgufWriter::tiny_moe;
    let deep = (0..20).fold(writer::array(writer::U32, &[]), |inner, _| writer::array(writer::ARRAY, &[inner]));
    let huge_array = [&writer::U32.to_le_bytes()[..], &(1u64 << 61).to_le_bytes()].concat();
    let cases: Vec<(GgufWriter, &[&str])> = vec![
        (GgufWriter { n_keys: Some(u64::MAX >> 1), ..tiny() }, &["9223372036854775807", "metadata keys"]),
        (GgufWriter { n_tensors: Some(1 << 60), ..tiny() }, &["1152921504606846976", "tensors"]),
        (tiny().entry("some.key", 99, [1, 0, 0, 0]), &["some.key", "type 99"]),
        (tiny().entry("some.key", 7, [2]), &["some.key", "bool"]),
        (tiny().entry("some.key", writer::ARRAY, huge_array), &["some.key", "2305843009213693952"]),
        (tiny().entry("some.key", writer::ARRAY, deep), &["some.key", "deeper"]),
        (tiny().entry("some.key", writer::STRING, (1u64 << 62).to_le_bytes()), &["truncated", "metadata"]),
        (tiny().entry(vec![b'k'; 70_000], writer::U32, [0; 4]), &["length of 70000"]),
        (tiny().u32("general.name", 1), &["general.name", "twice"]),
        (tiny().u32("general.alignment", 0), &["alignment", "0", "power of two"]),
        (tiny().u32("general.alignment", 48), &["alignment", "48", "power of two"]),
        (tiny().string("general.alignment", "32"), &["alignment", "string"]),
    ];
    for (writer, words) in cases {
        assert_says(&message_of(&writer.bytes()), words);
    }
}

#[test]
fn wrong_tensors_are_named() {
    let name = "blk.1.attn_q.weight";
    let broken = |change: fn(&mut writer::Tensor)| GgufWriter::tiny_moe().edit(name, change).bytes();
    let cases: [(Vec<u8>, &[&str]); 9] = [
        (broken(|t| t.ty = 200), &["type 200"]),
        (broken(|t| t.ty = 4), &["type 4"]),
        (broken(|t| t.dims = vec![64, 64, 1, 1, 1]), &["5 dimensions"]),
        (broken(|t| t.dims = vec![64, 0]), &["dimension of 0", "[64, 0]"]),
        (broken(|t| t.dims = vec![1 << 32, 1 << 32, 1 << 16, 1]), &["too large", "shape"]),
        (broken(|t| t.dims = vec![(1 << 63) - 32]), &["too large", "shape"]),
        (broken(|t| t.dims = vec![50, 64]), &["rows of 50", "block", "Q8_0"]),
        (broken(|t| t.offset = Some(1 << 40)), &["beyond the end"]),
        (broken(|t| t.offset = Some(u64::MAX - 31)), &["beyond the end"]),
    ];
    for (bytes, words) in cases {
        let message = message_of(&bytes);
        assert_says(&message, &[name]);
        assert_says(&message, words);
    }
    assert_says(&message_of(&broken(|t| t.offset = Some(33))), &[name, "alignment"]);
    assert_says(&message_of(&broken(|t| t.offset = Some(0))), &[name, "token_embd.weight", "overlap"]);
    let twice = GgufWriter::tiny_moe().tensor(name, &[64], writer::F32);
    assert_says(&message_of(&twice.bytes()), &[name, "twice"]);
}

/// Writes `shards` as `model-00001-of-0000N.gguf` and so on.
fn write_shards(folder: &Path, shards: &[GgufWriter]) -> Vec<PathBuf> {
    let path = |i| folder.join(format!("model-{:05}-of-{:05}.gguf", i + 1, shards.len()));
    shards.iter().enumerate().for_each(|(i, shard)| shard.write(&path(i)));
    (0..shards.len()).map(path).collect()
}

#[test]
fn any_shard_opens_the_set() {
    let folder = tempfile::tempdir().unwrap();
    let whole = GgufWriter::tiny_moe();
    for path in write_shards(folder.path(), &whole.split(&[5, 0, 8])) {
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!(gguf.metadata().require_str("general.name").unwrap(), "tiny");
        assert_eq!(gguf.shards().len(), 3);
        let mapped = gguf.map().unwrap();
        for (info, written) in gguf.tensors().iter().zip(&whole.tensors) {
            assert_eq!(info.name.as_bytes(), written.name);
            assert_eq!(mapped.tensor_bytes(info), written.content);
        }
        assert_eq!(gguf.tensor("blk.1.ffn_down_exps.weight").unwrap().shard, 2);
    }
}

#[test]
fn a_missing_shard_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write_shards(folder.path(), &GgufWriter::tiny_moe().split(&[4, 4, 4, 1]));
    std::fs::remove_file(&paths[1]).unwrap();
    std::fs::remove_file(&paths[3]).unwrap();
    let message = Gguf::open(&paths[2]).unwrap_err().to_string();
    assert_says(&message, &["model-00002-of-00004.gguf", "missing", "others missing: 1"]);
}

#[test]
fn a_shard_under_another_name_is_an_error_that_speaks_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let shards = GgufWriter::tiny_moe().split(&[6, 7]);
    for name in ["my model.gguf", "model-00002-of-00002.gguf", "model-00001-of-00003.gguf"] {
        let path = folder.path().join(name);
        shards[0].write(&path);
        let message = Gguf::open(&path).unwrap_err().to_string();
        assert_says(&message, &["shard 1", "split into 2", "name", "-00001-of-00002.gguf"]);
    }
}

#[test]
fn shards_that_do_not_belong_together_are_refused() {
    let tiny = GgufWriter::tiny_moe();
    let open = |shards: &[GgufWriter]| {
        let folder = tempfile::tempdir().unwrap();
        Gguf::open(&write_shards(folder.path(), shards)[0]).unwrap_err().to_string()
    };
    let parts = tiny.split(&[6, 7]);
    assert_says(&open(&[parts[0].clone(), parts[0].clone()]), &["00002-of-00002", "split.no", "0", "1"]);
    assert_says(&open(&[parts[0].clone(), GgufWriter::new()]), &["00002-of-00002", "split.count", "nothing"]);

    let mut short = tiny.split(&[6, 7]);
    short[1].tensors.pop();
    assert_says(&open(&short), &["split.tensors.count", "13", "12"]);

    let mut doubled = tiny.split(&[6, 7]);
    let copy = doubled[0].tensors[0].clone();
    doubled[1].tensors[0] = copy;
    assert_says(&open(&doubled), &["00002-of-00002", "token_embd.weight", "twice"]);
}

#[cfg(unix)]
#[test]
fn shards_are_found_beside_a_link_not_beside_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = folder.path().join("blobs");
    std::fs::create_dir(&blobs).unwrap();
    let mut first = None;
    for (i, shard) in GgufWriter::tiny_moe().split(&[6, 7]).iter().enumerate() {
        let blob = blobs.join(format!("c0ffee{i}"));
        shard.write(&blob);
        let link = folder.path().join(format!("m-{:05}-of-00002.gguf", i + 1));
        std::os::unix::fs::symlink(&blob, &link).unwrap();
        first.get_or_insert(link);
    }
    assert_eq!(Gguf::open(&first.unwrap()).unwrap().tensors().len(), 13);
}

#[cfg(unix)]
#[test]
fn an_open_model_outlives_its_path() {
    let (_folder, path) = folder_with(&GgufWriter::tiny_moe().bytes());
    let gguf = Gguf::open(&path).unwrap();
    std::fs::write(path.with_extension("new"), b"something else").unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    let info = &gguf.tensors()[0];
    assert_eq!(gguf.map().unwrap().tensor_bytes(info), GgufWriter::tiny_moe().tensors[0].content);
}

#[test]
fn a_file_that_shrank_since_it_was_opened_is_not_mapped() {
    let (_folder, path) = folder_with(&GgufWriter::tiny_moe().bytes());
    let gguf = Gguf::open(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert_says(&gguf.map().unwrap_err().to_string(), &["changed", "100"]);
}

#[test]
fn a_sparse_file_cannot_ask_for_more_memory_than_a_header_needs() {
    let mut bytes = GgufWriter { n_keys: Some(1), ..GgufWriter::new() }.header();
    bytes.extend(writer::string("k"));
    bytes.extend(writer::STRING.to_le_bytes());
    bytes.extend((1u64 << 34).to_le_bytes());
    let (_folder, path) = folder_with(&bytes);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 35).unwrap();
    assert_says(&Gguf::open(&path).unwrap_err().to_string(), &["metadata", "268435456"]);
}

#[test]
fn an_expert_is_a_slice_of_its_fused_tensor() {
    let gguf = open(&GgufWriter::tiny_moe());
    let layout = Layout::of(&gguf);
    let down = gguf.tensor("blk.1.ffn_down_exps.weight").unwrap();
    let slice = layout.expert(1, Projection::Down, 3).unwrap();
    assert_eq!((slice.rows, slice.cols, slice.ty), (64, 32, TensorType::F32));
    assert_eq!(slice.bytes, down.bytes / 4);
    assert_eq!(slice.offset, down.offset + 3 * slice.bytes);
    assert_eq!(layout.expert(1, Projection::Down, 4), None);
    assert_eq!(layout.expert(2, Projection::Down, 0), None);
}

#[test]
fn experts_stored_apart_read_the_same_as_fused_ones() {
    let mut apart = GgufWriter::tiny_moe();
    for tensor in std::mem::take(&mut apart.tensors) {
        let name = String::from_utf8(tensor.name.clone()).unwrap();
        let Some(stem) = name.strip_suffix("_exps.weight") else {
            apart.tensors.push(tensor);
            continue;
        };
        // Backwards, because files need not list experts in order.
        for expert in (0..4).rev() {
            let bytes = tensor.content.len() / 4;
            apart.tensors.push(writer::Tensor {
                name: format!("{stem}.{expert}.weight").into(),
                dims: tensor.dims[..2].into(),
                content: tensor.content[expert * bytes..][..bytes].into(),
                ..tensor.clone()
            });
        }
    }
    let (fused, apart) = (open(&GgufWriter::tiny_moe()), open(&apart));
    let (fused_layout, apart_layout) = (Layout::of(&fused), Layout::of(&apart));
    let (fused_map, apart_map) = (fused.map().unwrap(), apart.map().unwrap());
    for layer in 0..2 {
        for expert in 0..4 {
            for projection in [Projection::Gate, Projection::Up, Projection::Down] {
                let a = fused_layout.expert(layer, projection, expert).unwrap();
                let b = apart_layout.expert(layer, projection, expert).unwrap();
                assert_eq!((a.rows, a.cols, a.ty, a.bytes), (b.rows, b.cols, b.ty, b.bytes));
                assert_eq!(fused_map.range(a.shard, a.offset, a.bytes), apart_map.range(b.shard, b.offset, b.bytes));
            }
        }
    }
    assert_eq!(fused_layout.expert_bytes(), apart_layout.expert_bytes());
    assert_eq!(fused_layout.dense_bytes(), apart_layout.dense_bytes());
    assert_eq!(fused_layout.mean_expert_bytes(), apart_layout.mean_expert_bytes());
    assert_eq!(fused_layout.largest_expert_bytes(), apart_layout.largest_expert_bytes());
}

#[test]
fn dense_and_expert_bytes_make_up_all_tensors() {
    let writer = GgufWriter::tiny_moe();
    let layout = Layout::of(&open(&writer));
    let matrix = 32 * 64;
    let expert = 2 * matrix / 32 * 34 + matrix * 4;
    let dense_layer = 64 * 4 + 64 * 64 / 32 * 34 + 64 * 4 * 4;
    assert_eq!(layout.expert_bytes(), 2 * 4 * expert);
    assert_eq!(layout.mean_expert_bytes(), expert);
    assert_eq!(layout.largest_expert_bytes(), expert);
    assert_eq!(layout.largest_dense_layer_bytes(), dense_layer);
    assert_eq!(layout.expert_bytes_per_token(2), 2 * 2 * expert);
    assert_eq!(layout.bytes_per_token(2), layout.dense_bytes() + 4 * expert);
    let all: usize = writer.tensors.iter().map(|tensor| tensor.content.len()).sum();
    assert_eq!(layout.dense_bytes() + layout.expert_bytes(), all as u64);
}

#[test]
fn numbers_in_names_cannot_make_the_layout_large_or_ambiguous() {
    let layout = Layout::of(&open(
        &GgufWriter::new()
            .tensor("blk.18446744073709551615.ffn_gate.9999999999.weight", &[32, 2], writer::F32)
            .tensor("blk.99999999999999999999.x.weight", &[32], writer::F32)
            .tensor("blk.0.ffn_up.1.weight", &[32, 2], writer::F32)
            .tensor("blk.0.ffn_up.01.weight", &[32, 2], writer::F32)
            .tensor("blk.0.ffn_up_exps.bias", &[32, 2], writer::F32),
    ));
    assert_eq!(layout.layers.len(), 2);
    assert_eq!(layout.outside, [1]);
    assert!(layout.expert(usize::MAX, Projection::Gate, 9_999_999_999).is_some());
    assert_eq!(layout.layer(0).unwrap().dense, [3, 4]);
    assert_eq!(layout.n_experts(), 1);
}

#[test]
fn a_summary_tells_what_a_mixture_of_experts_holds() {
    let gguf = open(&GgufWriter::tiny_moe());
    let summary = Summary::of(&gguf, &Layout::of(&gguf));
    assert_eq!(summary.architecture.as_deref(), Some("qwen3moe"));
    assert_eq!(summary.name.as_deref(), Some("tiny"));
    assert_eq!((summary.n_layers, summary.n_experts, summary.n_experts_used), (2, 4, 2));
    assert_eq!((summary.n_heads, summary.n_kv_heads), (Some(4), Some(2)));
    assert_eq!((summary.head_dim, summary.embed_dim, summary.expert_dim), (Some(16), Some(64), Some(32)));
    assert_eq!((summary.vocab_size, summary.context_length), (Some(4), Some(128)));
    assert_eq!(summary.file_bytes, gguf.shards()[0].len);
    let types: Vec<_> = summary.tensor_types.iter().map(|used| (used.ty, used.n_tensors)).collect();
    assert_eq!(types, [(TensorType::F32, 7), (TensorType::Q8_0, 6)]);
}

#[test]
fn a_summary_of_a_dense_or_empty_file_has_no_experts_and_does_not_fail() {
    let dense = open(
        &GgufWriter::new()
            .string("general.architecture", "llama")
            .u32("llama.feed_forward_length", 128)
            .entry(
                "llama.attention.head_count",
                writer::ARRAY,
                writer::array(writer::U32, &[[4, 0, 0, 0].into(), [8, 0, 0, 0].into()]),
            )
            .string("llama.context_length", "not a number")
            .tensor("blk.0.ffn_up.weight", &[64, 128], writer::Q8_0),
    );
    let summary = Summary::of(&dense, &Layout::of(&dense));
    assert_eq!((summary.n_layers, summary.n_experts, summary.expert_dim), (1, 0, None));
    assert_eq!((summary.n_heads, summary.n_kv_heads, summary.context_length), (Some(8), Some(8), None));
    assert_eq!((summary.expert_bytes, summary.bytes_per_expert, summary.expert_bytes_per_token), (0, 0, 0));

    let empty = open(&GgufWriter::new());
    let summary = Summary::of(&empty, &Layout::of(&empty));
    assert_eq!((summary.architecture, summary.n_layers, summary.vocab_size), (None, 0, None));
    assert!(summary.tensor_types.is_empty());
}
