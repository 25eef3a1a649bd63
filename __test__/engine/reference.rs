//! The engine beside the plain float64 forward pass of `__test__/reference`, whose answers are recorded in
//! `reference_logits.npy`. Run with `--nocapture` to see the table.

#[path = "../support/gguf_writer.rs"]
mod gguf_writer;
#[path = "../support/models.rs"]
mod models;
#[path = "../support/npy.rs"]
mod npy;
#[path = "../support/recorded.rs"]
mod recorded;

use clutor::gguf::{Gguf, Value};
use clutor::quant::dequantize_row;
use gguf_writer::{F32, GgufWriter, Tensor};
use models::{golden_folders, kernel_paths, load, name};
use recorded::{divergences, largest_difference, mean, record, tokens};
use std::path::Path;

/// Writes `from` with all its tensors decoded to f32, and without its tokenizer.
fn write_as_f32(from: &Path, to: &Path) {
    let gguf = Gguf::open(from).unwrap();
    let files = gguf.map().unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| !key.starts_with("tokenizer.")) {
        let encoded = match value {
            Value::U32(value) => value.to_le_bytes().to_vec(),
            Value::F32(value) => value.to_le_bytes().to_vec(),
            Value::String(value) => gguf_writer::string(value),
            other => panic!("{key} has the type {}", other.type_name()),
        };
        writer = writer.entry(key, value.ty() as u32, encoded);
    }
    for tensor in gguf.tensors() {
        let cols = *tensor.shape.last().unwrap();
        let mut row = vec![0.0; cols];
        let mut content = Vec::new();
        for bytes in files.tensor_bytes(tensor).chunks_exact(tensor.ty.row_bytes(cols).unwrap()) {
            dequantize_row(tensor.ty, bytes, &mut row);
            content.extend(row.iter().flat_map(|x| x.to_le_bytes()));
        }
        let dims = tensor.shape.iter().rev().map(|dim| *dim as u64).collect();
        writer.tensors.push(Tensor { name: tensor.name.clone().into(), dims, ty: F32, content, offset: None });
    }
    writer.write(to);
}

#[test]
fn with_f32_weights_the_logits_are_those_of_the_formulas() {
    let folder = tempfile::tempdir().unwrap();
    for (i, from) in golden_folders().into_iter().filter(|folder| name(folder).ends_with("-base")).enumerate() {
        let file = folder.path().join(format!("{i}.gguf"));
        write_as_f32(&from.join("model.gguf"), &file);
        let theirs = npy::read_f32(&from.join("reference_logits.npy"));
        for path in kernel_paths() {
            let ours = record(&load(&file, path, 1), &tokens(&from)).logits;
            let difference = largest_difference(&theirs, &ours);
            println!("{:16} {path:12} largest difference {difference:.1e}", name(&from));
            assert!(difference < 1e-4, "{} on {path}: a logit is off by {difference}", name(&from));
        }
    }
}

/// Rounding activations to 8 bits moves the logits, and where it moves a near tie of the router, a whole position: the
/// median says whether the formulas are right.
#[test]
fn with_quantized_weights_the_logits_differ_by_what_8_bit_activations_cost() {
    println!("{:16} {:>9} {:>9} {:>9}", "model", "mean KL", "median KL", "max diff");
    for folder in golden_folders() {
        let theirs = npy::read_f32(&folder.join("reference_logits.npy"));
        let model = load(&folder.join("model.gguf"), "scalar", 1);
        let ours = record(&model, &tokens(&folder)).logits;
        let mut all = divergences(&theirs, &ours, model.vocab_size());
        all.sort_by(f64::total_cmp);
        let (mean, median) = (mean(&all), all[all.len() / 2]);
        println!("{:16} {mean:9.1e} {median:9.1e} {:9.1e}", name(&folder), largest_difference(&theirs, &ours));
        assert!(median < 1e-3, "{}: median KL divergence {median:e}", name(&folder));
    }
}
