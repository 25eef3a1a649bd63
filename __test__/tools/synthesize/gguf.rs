//! The head of a GGUF file: keys and the table of tensors.
//!
//! Source: the GGUF specification in ggml's `docs/gguf.md`.

/// Tensor data begins, and each tensor with it, at a multiple of this: the format's default.
pub const ALIGNMENT: u64 = 32;

/// Ids of value types.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Keys in the making.
#[derive(Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    n: u64,
}

impl Keys {
    pub fn u32(&mut self, key: &str, value: u32) {
        self.key(key, U32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn f32(&mut self, key: &str, value: f32) {
        self.key(key, F32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn bool(&mut self, key: &str, value: bool) {
        self.key(key, BOOL);
        self.bytes.push(u8::from(value));
    }

    pub fn string(&mut self, key: &str, value: &str) {
        self.key(key, STRING);
        string(&mut self.bytes, value);
    }

    pub fn strings(&mut self, key: &str, values: &[String]) {
        self.array(key, STRING, values.len());
        values.iter().for_each(|value| string(&mut self.bytes, value));
    }

    pub fn i32s(&mut self, key: &str, values: &[i32]) {
        self.array(key, I32, values.len());
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }

    fn array(&mut self, key: &str, ty: u32, n: usize) {
        self.key(key, ARRAY);
        self.bytes.extend(ty.to_le_bytes());
        self.bytes.extend((n as u64).to_le_bytes());
    }

    fn key(&mut self, key: &str, ty: u32) {
        string(&mut self.bytes, key);
        self.bytes.extend(ty.to_le_bytes());
        self.n += 1;
    }
}

/// A row of the table of tensors.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub name: &'a str,
    /// Outermost first; the file has them the other way round.
    pub shape: &'a [usize],
    pub type_id: u32,
    /// From the begin of the tensor data.
    pub offset: u64,
}

/// Everything before the tensor data, padded to where that begins.
pub fn head<'a>(keys: &Keys, tensors: impl ExactSizeIterator<Item = Entry<'a>>) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend(keys.n.to_le_bytes());
    out.extend(&keys.bytes);
    for tensor in tensors {
        string(&mut out, tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|dim| out.extend((*dim as u64).to_le_bytes()));
        out.extend(tensor.type_id.to_le_bytes());
        out.extend(tensor.offset.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
    out
}

fn string(out: &mut Vec<u8>, value: &str) {
    out.extend((value.len() as u64).to_le_bytes());
    out.extend(value.as_bytes());
}
