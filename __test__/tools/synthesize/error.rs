//! Why a model cannot be written.

use clutor::quant::TensorType;
use std::path::PathBuf;

/// Why a model cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SynthesizeError {
    #[error("preset and output file are missing")]
    Missing,

    #[error("`{found}` is not a preset; there are {known}")]
    Preset { found: String, known: String },

    #[error("`{found}` is not an option")]
    Option { found: String },

    #[error("{option} needs a value")]
    NoValue { option: String },

    #[error("{option} is `{found}`, but must be {expected}")]
    Value { option: String, found: String, expected: &'static str },

    #[error("`{found}` is not a type or a mix of types; there are {known}")]
    Type { found: String, known: String },

    #[error("{why}; change {options}")]
    Shape { why: String, options: &'static str },

    #[error(
        "tensor `{tensor}` has rows of {cols} elements, which are not whole {ty} blocks of {block_len}; choose another \
         width, or another type with --tensor-type"
    )]
    Blocks { tensor: String, cols: usize, ty: TensorType, block_len: usize },

    #[error(
        "tensor `{tensor}` holds chosen numbers, which cannot be written as {ty}; use one of {known} for it with \
         --tensor-type"
    )]
    NotEncodable { tensor: String, ty: TensorType, known: String },

    #[error("no tensor's name contains `{part}`")]
    NoTensor { part: String },

    #[error("{path} exists; use --force to replace it")]
    Exists { path: PathBuf },

    #[error("{path} is not the file that these options make; --only needs the options that wrote it")]
    OtherFile { path: PathBuf },

    #[error("{path} needs {needed_mib} MiB, but the drive has {free_mib} MiB free; make room or choose another place")]
    Space { path: PathBuf, needed_mib: u64, free_mib: u64 },

    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}
