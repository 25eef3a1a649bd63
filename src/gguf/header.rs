//! Parses the header of one file: metadata, then the tensor table, checked against the file's size.

use std::fs::File;
use std::path::Path;

use crate::quant::TensorType;

use super::error::shown;
use super::metadata::{Metadata, sorted_by_name};
use super::reader::HeaderReader;
use super::value::{Array, NumberArray, StringArray, Value, ValueType};
use super::{GgufError, TensorInfo};

/// Most bytes of a key: the specification's limit. Tensor names get the same, though it asks for at most 64.
const MAX_NAME_BYTES: u64 = 65_535;
/// Deepest nesting of arrays; published files use one level.
const MAX_ARRAY_DEPTH: usize = 8;
/// Fewest bytes of a metadata entry: length of the key, type and a value of one byte.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Fewest bytes in the tensor table: length of the name, number of dimensions, type and offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;
/// Alignment of the data where the file states none.
const DEFAULT_ALIGNMENT: u64 = 32;

/// What one file says about itself.
pub(super) struct Header {
    pub(super) version: u32,
    /// Bytes; a power of two.
    pub(super) alignment: u64,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

/// Reads and checks the header of `file`, which has `len` bytes. Reads no tensor data.
///
/// The tensors' `shard` is 0: whoever joins shards knows better.
pub(super) fn parse(path: &Path, file: &File, len: u64) -> Result<Header, GgufError> {
    let mut reader = HeaderReader::new(path, file, len);
    let version = read_magic_and_version(&mut reader)?;
    let n_tensors = reader.u64()?;
    let n_keys = reader.u64()?;

    reader.enter("metadata");
    let n_keys = reader.check_count(n_keys, MIN_ENTRY_BYTES, "metadata keys")?;
    let mut entries = Vec::new();
    for i in 0..n_keys {
        let key = reader.name(MAX_NAME_BYTES, || format!("metadata key {i}"))?;
        let value = read_value(&mut reader, &key)?;
        entries.push((key, value));
    }
    let metadata = Metadata::new(path, entries)?;
    let alignment = read_alignment(path, &metadata)?;

    reader.enter("tensor table");
    let n_tensors = reader.check_count(n_tensors, MIN_TENSOR_BYTES, "tensors")?;
    let mut tensors = Vec::new();
    for i in 0..n_tensors {
        tensors.push(read_tensor(&mut reader, i, alignment)?);
    }

    // The data begins at the next multiple of the alignment. Past 2^64 the file cannot hold any, which `place` finds.
    let data_start = reader.pos().checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    place(path, &mut tensors, data_start, len)?;
    Ok(Header { version, alignment, metadata, tensors })
}

fn read_magic_and_version(reader: &mut HeaderReader) -> Result<u32, GgufError> {
    let magic: [u8; 4] = reader.array()?;
    if &magic != b"GGUF" {
        let hint = match &magic {
            b"<!DO" | b"<!do" | b"<htm" | b"<HTM" => "; it looks like a web page, download the file itself",
            b"vers" => "; it looks like a Git LFS pointer, fetch the file with `git lfs pull`",
            b"tjgg" | b"fmgg" | b"lmgg" | b"algg" => "; it is an older ggml container, convert the model to GGUF",
            b"PK\x03\x04" => "; it is a zip archive, unpack or convert it",
            _ => "",
        };
        return Err(GgufError::Magic { path: reader.path().into(), found: shown(&magic), hint });
    }
    let version = reader.u32()?;
    match version {
        2 | 3 => Ok(version),
        // Small numbers have their low bytes at the other end in a big-endian file.
        _ if version != 0 && version & 0xffff == 0 => Err(GgufError::BigEndian { path: reader.path().into() }),
        _ => Err(GgufError::Version { path: reader.path().into(), version }),
    }
}

fn read_value(reader: &mut HeaderReader, key: &str) -> Result<Value, GgufError> {
    match read_type(reader, key)? {
        ValueType::String => Ok(Value::String(reader.string()?)),
        ValueType::Array => Ok(Value::Array(read_array(reader, key, MAX_ARRAY_DEPTH)?)),
        ty => read_number(reader, key, ty),
    }
}

fn read_type(reader: &mut HeaderReader, key: &str) -> Result<ValueType, GgufError> {
    let id = reader.u32()?;
    ValueType::from_id(id).ok_or_else(|| GgufError::ValueType {
        path: reader.path().into(),
        key: shown(key.as_bytes()),
        id,
    })
}

fn read_number(reader: &mut HeaderReader, key: &str, ty: ValueType) -> Result<Value, GgufError> {
    Ok(match ty {
        ValueType::U8 => Value::U8(u8::from_le_bytes(reader.array()?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(reader.array()?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(reader.array()?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(reader.array()?)),
        ValueType::U32 => Value::U32(reader.u32()?),
        ValueType::I32 => Value::I32(i32::from_le_bytes(reader.array()?)),
        ValueType::U64 => Value::U64(reader.u64()?),
        ValueType::I64 => Value::I64(i64::from_le_bytes(reader.array()?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(reader.array()?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(reader.array()?)),
        ValueType::Bool => {
            let [byte] = reader.array()?;
            check_bools(reader, key, &[byte])?;
            Value::Bool(byte == 1)
        }
        ValueType::String | ValueType::Array => unreachable!("the callers read these themselves"),
    })
}

/// Reads an array whose own type was read; `depth` is how many levels may still be nested.
fn read_array(reader: &mut HeaderReader, key: &str, depth: usize) -> Result<Array, GgufError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(GgufError::NestedTooDeep {
            path: reader.path().into(),
            key: shown(key.as_bytes()),
            limit: MAX_ARRAY_DEPTH,
        });
    };
    let ty = read_type(reader, key)?;
    let count = reader.u64()?;
    // A string takes its length of 8 bytes, an array its type and count.
    let min_bytes = ty.bytes().unwrap_or(if ty == ValueType::String { 8 } else { 12 }) as u64;
    let n = check_elements(reader, key, count, min_bytes)?;
    match ty {
        ValueType::String => read_strings(reader, n).map(Array::Strings),
        ValueType::Array => {
            let mut arrays = Vec::new();
            for _ in 0..n {
                arrays.push(read_array(reader, key, depth)?);
            }
            Ok(Array::Arrays(arrays.into()))
        }
        _ => {
            let mut bytes = Vec::new();
            // `check_elements` saw that the product is within the file.
            reader.append(count.saturating_mul(min_bytes), &mut bytes)?;
            if ty == ValueType::Bool {
                check_bools(reader, key, &bytes)?;
            }
            NumberArray::new(ty, bytes.into()).map(Array::Numbers).ok_or_else(|| unreachable!("{ty:?} has a size"))
        }
    }
}

fn check_elements(reader: &HeaderReader, key: &str, count: u64, min_bytes: u64) -> Result<usize, GgufError> {
    // The message is only put together once the count is known to be wrong: files have many small arrays.
    reader
        .check_count(count, min_bytes, "")
        .or_else(|_| reader.check_count(count, min_bytes, &format!("array elements for `{}`", shown(key.as_bytes()))))
}

fn check_bools(reader: &HeaderReader, key: &str, bytes: &[u8]) -> Result<(), GgufError> {
    match bytes.iter().find(|byte| **byte > 1) {
        None => Ok(()),
        Some(&found) => Err(GgufError::Bool { path: reader.path().into(), key: shown(key.as_bytes()), found }),
    }
}

fn read_strings(reader: &mut HeaderReader, n: usize) -> Result<StringArray, GgufError> {
    let mut arena = Vec::new();
    let mut ends = Vec::with_capacity(n);
    for _ in 0..n {
        let len = reader.u64()?;
        reader.append(len, &mut arena)?;
        // The arena is smaller than the header, whose limit is below 2^32.
        ends.push(arena.len() as u32);
    }
    Ok(StringArray::new(arena.into(), ends.into()))
}

fn read_alignment(path: &Path, metadata: &Metadata) -> Result<u64, GgufError> {
    let Some(value) = metadata.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    let alignment = value.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| n.is_power_of_two());
    alignment.ok_or_else(|| GgufError::Alignment {
        path: path.into(),
        found: match value.as_integer() {
            Some(n) => n.to_string(),
            None => format!("of the type {}", value.type_name()),
        },
    })
}

/// Reads entry `i` of the tensor table. `offset` is still relative to the data.
fn read_tensor(reader: &mut HeaderReader, i: usize, alignment: u64) -> Result<TensorInfo, GgufError> {
    let path = reader.path();
    let name = reader.name(MAX_NAME_BYTES, || format!("tensor {i}"))?;
    let tensor = || shown(name.as_bytes());

    let n_dims = reader.u32()?;
    if n_dims > 4 {
        return Err(GgufError::Dimensions { path: path.into(), tensor: tensor(), found: n_dims });
    }
    let mut dims = Vec::with_capacity(4);
    for _ in 0..n_dims {
        dims.push(reader.u64()?);
    }
    let id = reader.u32()?;
    let offset = reader.u64()?;

    let ty =
        TensorType::from_id(id).ok_or_else(|| GgufError::TensorType { path: path.into(), tensor: tensor(), id })?;
    if dims.contains(&0) {
        return Err(GgufError::EmptyTensor { path: path.into(), tensor: tensor(), shape: format!("{dims:?}") });
    }
    let cols = dims.first().copied().unwrap_or(1);
    if !cols.is_multiple_of(ty.block_len() as u64) {
        let block = ty.block_len();
        return Err(GgufError::RowBlocks { path: path.into(), tensor: tensor(), cols, block, ty: ty.name() });
    }
    let (shape, bytes) = shape_and_bytes(ty, &dims).ok_or_else(|| GgufError::TensorTooLarge {
        path: path.into(),
        tensor: tensor(),
        shape: format!("{dims:?}"),
    })?;
    // `alignment` is a power of two, so this is the remainder.
    if offset & alignment.wrapping_sub(1) != 0 {
        return Err(GgufError::Misaligned { path: path.into(), tensor: tensor(), offset, alignment });
    }
    Ok(TensorInfo { name, ty, shape, bytes, shard: 0, offset })
}

/// Shape outermost first and size in bytes, or `None` where either does not fit 63 bits.
fn shape_and_bytes(ty: TensorType, dims: &[u64]) -> Option<(Vec<usize>, u64)> {
    let limit = |n: &u64| *n <= i64::MAX as u64;
    dims.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim)).filter(limit)?;
    let (cols, outer) = dims.split_first().unwrap_or((&1, &[]));
    let row_bytes = ty.row_bytes(usize::try_from(*cols).ok()?)? as u64;
    let bytes = outer.iter().try_fold(row_bytes, |n, dim| n.checked_mul(*dim)).filter(limit)?;
    // GGUF lists dimensions innermost first. A file may leave out all of them for a single value.
    let mut shape = outer.iter().rev().map(|dim| usize::try_from(*dim).ok()).collect::<Option<Vec<_>>>()?;
    shape.push(usize::try_from(*cols).ok()?);
    Some((shape, bytes))
}

/// Makes offsets absolute and checks that the tensors have names of their own, lie within the file and do not overlap.
fn place(path: &Path, tensors: &mut [TensorInfo], data_start: u64, len: u64) -> Result<(), GgufError> {
    // Names first: two entries of one name usually share their bytes too, and the name says more.
    sorted_by_name(tensors, |tensor| &tensor.name)
        .map_err(|name| GgufError::DuplicateTensor { path: path.into(), tensor: shown(name.as_bytes()) })?;
    for tensor in tensors.iter_mut() {
        // Sums that do not fit saturate, and are then past the end of any file.
        tensor.offset = data_start.saturating_add(tensor.offset);
        let end = tensor.end();
        if end > len {
            let tensor = shown(tensor.name.as_bytes());
            return Err(GgufError::TensorOutOfBounds { path: path.into(), tensor, end, len });
        }
    }
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_unstable_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        if let [first, second] = pair
            && first.end() > second.offset
        {
            return Err(GgufError::Overlap {
                path: path.into(),
                first: shown(first.name.as_bytes()),
                second: shown(second.name.as_bytes()),
            });
        }
    }
    Ok(())
}
