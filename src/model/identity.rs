//! Which model a file is, wherever it lies.

use crate::gguf::{Gguf, TensorInfo};
use sha2::{Digest, Sha256};
use std::io;

/// Bytes of a router that are looked at: a row or two, which no two trainings share.
const SAMPLE_BYTES: u64 = 4096;

/// What tells a model from others: SHA-256 of the sizes of its files, its table of tensors, and the beginnings of its first
/// and its last router.
///
/// Paths and times do not matter, so a model that was moved or fetched again is the same one. Two reads of a page each,
/// instead of gigabytes: enough, since what is remembered under this name changes when experts are read and never what is
/// computed.
///
/// # Errors
/// Where a router cannot be read.
pub(super) fn identity(gguf: &Gguf) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut number = |number: u64| hash.update(number.to_le_bytes());
    number(gguf.shards().len() as u64);
    gguf.shards().iter().for_each(|shard| number(shard.len));
    for TensorInfo { name, shape, ty, shard, offset, .. } in gguf.tensors() {
        number(name.len() as u64);
        name.bytes().for_each(|byte| number(byte.into()));
        number(shape.len() as u64);
        shape.iter().for_each(|dim| number(*dim as u64));
        number((*ty as u32).into());
        number(*shard as u64);
        number(*offset);
    }
    let mut routers = gguf.tensors().iter().filter(|tensor| tensor.name.ends_with("ffn_gate_inp.weight"));
    for router in [routers.next(), routers.next_back()].into_iter().flatten() {
        let mut sample = vec![0; router.bytes.min(SAMPLE_BYTES) as usize];
        let shard = gguf.shards().get(router.shard).ok_or(io::ErrorKind::NotFound)?;
        shard.read_exact_at(&mut sample, router.offset)?;
        hash.update(&sample);
    }
    Ok(hash.finalize().into())
}
