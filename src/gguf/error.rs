//! Everything that can be wrong with a GGUF file, with the words that the user reads.

use std::io;
use std::path::PathBuf;

/// Why a GGUF file could not be opened, or a value not be read from it.
///
/// Names that come from a file are escaped and cut short before they get here, so that a message stays one line.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("{path}: cannot {action} the file: {source}")]
    Io { path: PathBuf, action: &'static str, source: io::Error },

    #[error("{path}: is not a regular file; pass the path of a .gguf file")]
    NotAFile { path: PathBuf },

    #[error("{path}: is not a GGUF file: it starts with `{found}` where the magic `GGUF` is expected{hint}")]
    Magic { path: PathBuf, found: String, hint: &'static str },

    #[error("{path}: is a big-endian GGUF file; only little-endian ones are supported, convert it or fetch another")]
    BigEndian { path: PathBuf },

    #[error("{path}: has GGUF version {version}; versions 2 and 3 are supported, convert the model anew")]
    Version { path: PathBuf, version: u32 },

    #[error(
        "{path}: truncated: the {section} needs bytes up to {end}, but the file has {len} bytes; the download is \
         incomplete or the file is damaged, fetch it again"
    )]
    Truncated { path: PathBuf, section: &'static str, end: u64, len: u64 },

    #[error("{path}: the {section} goes on past {limit} bytes, more than any model needs; the file is damaged")]
    HeaderTooLarge { path: PathBuf, section: &'static str, limit: u64 },

    #[error(
        "{path}: announces a count of {count} {what}, but its {room} remaining bytes cannot hold them; the file is \
         truncated or damaged, fetch it again"
    )]
    Count { path: PathBuf, what: String, count: u64, room: u64 },

    #[error("{path}: the name of {what} has a length of {len} bytes; at most {limit} are allowed, the file is damaged")]
    NameTooLong { path: PathBuf, what: String, len: u64, limit: u64 },

    #[error("{path}: the metadata key `{key}` has the unknown value type {id}; types 0 to 12 are known")]
    ValueType { path: PathBuf, key: String, id: u32 },

    #[error("{path}: the metadata key `{key}` nests arrays deeper than {limit} levels")]
    NestedTooDeep { path: PathBuf, key: String, limit: usize },

    #[error("{path}: the metadata key `{key}` holds the byte {found} as a bool; 0 or 1 is expected")]
    Bool { path: PathBuf, key: String, found: u8 },

    #[error("{path}: the metadata key `{key}` is given twice")]
    DuplicateKey { path: PathBuf, key: String },

    #[error("{path}: the metadata key `{key}` is missing; the file does not describe its model completely")]
    MissingKey { path: PathBuf, key: String },

    #[error("{path}: the metadata key `{key}` has the type {found}; {expected} is expected")]
    WrongType { path: PathBuf, key: String, found: String, expected: &'static str },

    #[error("{path}: the metadata key `{key}` holds {found}, which does not fit {expected}")]
    OutOfRange { path: PathBuf, key: String, found: String, expected: &'static str },

    #[error("{path}: the alignment `general.alignment` is {found}; a power of two is expected")]
    Alignment { path: PathBuf, found: String },

    #[error("{path}: the tensor `{tensor}` occurs twice")]
    DuplicateTensor { path: PathBuf, tensor: String },

    #[error("{path}: the tensor `{tensor}` has {found} dimensions; at most 4 are expected")]
    Dimensions { path: PathBuf, tensor: String, found: u32 },

    #[error("{path}: the tensor `{tensor}` has a dimension of 0 in its shape {shape}, innermost first")]
    EmptyTensor { path: PathBuf, tensor: String, shape: String },

    #[error("{path}: the tensor `{tensor}` is too large: the size of its shape {shape}, innermost first, overflows")]
    TensorTooLarge { path: PathBuf, tensor: String, shape: String },

    #[error("{path}: the tensor `{tensor}` has the unknown type {id}; a newer program may know it")]
    TensorType { path: PathBuf, tensor: String, id: u32 },

    #[error(
        "{path}: the tensor `{tensor}` has rows of {cols} values, not a multiple of the {block} values in a block of {ty}"
    )]
    RowBlocks { path: PathBuf, tensor: String, cols: u64, block: usize, ty: &'static str },

    #[error(
        "{path}: the tensor `{tensor}` starts at the data offset {offset}, not a multiple of the alignment {alignment}"
    )]
    Misaligned { path: PathBuf, tensor: String, offset: u64, alignment: u64 },

    #[error(
        "{path}: the tensor `{tensor}` ends at byte {end}, beyond the end of the file, which has {len} bytes; the \
         download is incomplete or the file is damaged, fetch it again"
    )]
    TensorOutOfBounds { path: PathBuf, tensor: String, end: u64, len: u64 },

    #[error("{path}: the tensors `{first}` and `{second}` overlap; the file is damaged")]
    Overlap { path: PathBuf, first: String, second: String },

    #[error(
        "{path}: is shard {number} of a model split into {count}, but its name does not end in \
         `-{number:05}-of-{count:05}.gguf`, so the other shards cannot be found; give the shards their names back"
    )]
    ShardName { path: PathBuf, number: u64, count: u64 },

    #[error(
        "{path}: this shard of {count} is missing (others missing: {others}); put all shards of the model in one folder"
    )]
    ShardMissing { path: PathBuf, others: usize, count: u64 },

    #[error(
        "{path}: the shard states `{key}` {found}; its place in the set needs {expected}, the shards do not belong together"
    )]
    ShardMismatch { path: PathBuf, key: &'static str, found: String, expected: u64 },

    #[error(
        "{path}: `split.tensors.count` announces {announced} tensors, but the shards hold {n_tensors}; fetch them again"
    )]
    ShardTensors { path: PathBuf, announced: u64, n_tensors: usize },

    #[error("{path}: the file changed since it was opened: it had {opened} bytes and now has {now}; open it again")]
    Changed { path: PathBuf, opened: u64, now: u64 },
}

/// Most bytes of a name that a message shows.
const SHOWN_BYTES: usize = 120;

/// Makes a name from a file fit for a message: control characters escaped, at most [`SHOWN_BYTES`] and an ellipsis.
pub(super) fn shown(name: &[u8]) -> String {
    let head = name.get(..SHOWN_BYTES).unwrap_or(name);
    let mut text: String = String::from_utf8_lossy(head).chars().flat_map(char::escape_debug).collect();
    if head.len() < name.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_line_breaks_is_shown_on_one_line() {
        assert_eq!(shown(b"a\nb\x1b[2J"), "a\\nb\\u{1b}[2J");
    }

    #[test]
    fn a_long_name_is_cut_short() {
        let text = shown(&[b'x'; 5000]);
        assert_eq!(text.chars().count(), SHOWN_BYTES + 1);
        assert!(text.ends_with('…'));
    }
}
