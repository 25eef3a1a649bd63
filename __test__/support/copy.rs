//! Takes a model file apart, so that tests can change it and write it again.
#![allow(dead_code)] // Each test uses what it needs.

use crate::gguf_writer::{self, F32, GgufWriter, Tensor};
use clutor::gguf::{Array, Gguf, Value};
use clutor::quant::dequantize_row;
use std::path::Path;

/// Everything that is in the file at `path`.
pub fn copy_of(path: &Path) -> GgufWriter {
    let gguf = Gguf::open(path).unwrap();
    let files = gguf.map().unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().iter() {
        writer = writer.entry(key, value.ty() as u32, encoded(value));
    }
    for tensor in gguf.tensors() {
        let (name, dims) = (tensor.name.clone().into(), tensor.shape.iter().rev().map(|dim| *dim as u64).collect());
        let content = files.tensor_bytes(tensor).to_vec();
        writer.tensors.push(Tensor { name, dims, ty: tensor.ty as u32, content, offset: None });
    }
    writer
}

/// Decodes every tensor to f32.
pub fn as_f32(mut writer: GgufWriter) -> GgufWriter {
    for tensor in &mut writer.tensors {
        let ty = clutor::quant::TensorType::from_id(tensor.ty).unwrap();
        let mut row = vec![0.0; tensor.dims[0] as usize];
        let rows = tensor.content.chunks_exact(ty.row_bytes(row.len()).unwrap());
        let decode = |bytes: &[u8]| {
            dequantize_row(ty, bytes, &mut row);
            row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()
        };
        tensor.content = rows.flat_map(decode).collect();
        tensor.ty = F32;
    }
    writer
}

/// Sets `key` to an already encoded value, in its place where the file has it.
pub fn set(writer: &mut GgufWriter, key: &str, ty: u32, value: Vec<u8>) {
    match writer.entries.iter_mut().find(|entry| entry.0 == key.as_bytes()) {
        Some(entry) => (entry.1, entry.2) = (ty, value),
        None => writer.entries.push((key.into(), ty, value)),
    }
}

/// Removes `key`.
pub fn remove(writer: &mut GgufWriter, key: &str) {
    writer.entries.retain(|entry| entry.0 != key.as_bytes());
}

fn encoded(value: &Value) -> Vec<u8> {
    match value {
        Value::U32(value) => value.to_le_bytes().to_vec(),
        Value::I32(value) => value.to_le_bytes().to_vec(),
        Value::F32(value) => value.to_le_bytes().to_vec(),
        Value::Bool(value) => vec![u8::from(*value)],
        Value::String(value) => gguf_writer::string(value),
        Value::Array(array) => {
            let items: Vec<Vec<u8>> = match array {
                Array::Strings(strings) => strings.iter().map(gguf_writer::string).collect(),
                Array::Numbers(numbers) => numbers.iter().map(|number| encoded(&number)).collect(),
                Array::Arrays(_) => panic!("no test model has nested arrays"),
            };
            gguf_writer::array(array.element_type() as u32, &items)
        }
        other => panic!("no test model has a {}", other.type_name()),
    }
}
