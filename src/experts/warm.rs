//! What was hot, remembered from one run to the next: a small file for each model.
//!
//! The file, little-endian: magic, version (u32), identity of the model (32 bytes), layers, experts of a layer and entries
//! (u32 each); the entries by falling weight, each a layer and an expert in one key (u32, `layer · experts + expert`) and
//! how often it was used lately (f32); SHA-256 of everything before. It is advice: whatever is wrong with it, a model
//! runs without.

use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const MAGIC: [u8; 8] = *b"clutor-w";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = MAGIC.len() + 4 + 32 + 3 * 4;
const ENTRY_BYTES: usize = 8;
const SUM_BYTES: usize = 32;
/// Ends the names of the files, those half written included.
const SUFFIX: &str = ".clutor-warm";
/// Files of a folder at most: with more models than that, the one not used for longest is forgotten.
const MAX_FILES: usize = 64;

/// An expert that was hot: layer, expert, and how often it was used lately.
pub type Hot = (usize, u32, f32);

/// Where it is remembered which experts of a model were hot.
#[derive(Clone, Debug)]
pub struct WarmFile {
    folder: PathBuf,
    path: PathBuf,
    identity: [u8; 32],
    n_layers: u32,
    n_experts: u32,
}

/// Why nothing was remembered, or is not to be had. Never a reason not to go on.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    #[error("{path}: what was hot cannot be read: {source}; it is left out")]
    Read { path: PathBuf, source: io::Error },

    #[error("{path}: {what}; it is left out, and the end of this run replaces it")]
    Invalid { path: PathBuf, what: &'static str },

    #[error("{path}: what is hot cannot be written: {source}; make the folder writable, or turn the warm start off")]
    Write { path: PathBuf, source: io::Error },
}

impl WarmFile {
    /// The file in `folder` for the model with this identity, of `n_layers` layers of `n_experts` experts. Neither has to
    /// exist.
    pub fn new(folder: &Path, identity: [u8; 32], n_layers: u32, n_experts: u32) -> Self {
        // Half of the identity is enough of a name; the file has the whole.
        let name: String = identity[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { folder: folder.into(), path: folder.join(name + SUFFIX), identity, n_layers, n_experts }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was hot, by falling use; nothing where there is no file yet.
    ///
    /// Reads no more bytes than a sound file of this model has.
    ///
    /// # Errors
    /// Where the file cannot be read, is damaged, or is another model's or version's.
    pub fn load(&self) -> Result<Vec<Hot>, WarmError> {
        let failed = |source| WarmError::Read { path: self.path.clone(), source };
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(self.max_bytes() + 1).read_to_end(&mut bytes).map_err(failed)?;
        self.decode(&bytes).map_err(|what| WarmError::Invalid { path: self.path.clone(), what })
    }

    /// Replaces the file, at once or not at all. Makes the folder, for this user alone, where there is none.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn save(&self, hot: &[Hot]) -> Result<(), WarmError> {
        self.write(&self.encode(hot)).map_err(|source| WarmError::Write { path: self.path.clone(), source })?;
        forget_oldest(&self.folder);
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        create_folder(&self.folder)?;
        // A name of its own, so that processes that end at once do not write into each other; readable for this user alone.
        let mut file = tempfile::Builder::new().prefix(".").suffix(SUFFIX).tempfile_in(&self.folder)?;
        file.write_all(bytes)?;
        file.persist(&self.path)?;
        Ok(())
    }

    fn max_bytes(&self) -> u64 {
        let n_keys = u64::from(self.n_layers) * u64::from(self.n_experts);
        (HEADER_BYTES + SUM_BYTES) as u64 + n_keys * ENTRY_BYTES as u64
    }

    fn header(&self, n_entries: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.identity);
        [self.n_layers, self.n_experts, n_entries].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes
    }

    fn encode(&self, hot: &[Hot]) -> Vec<u8> {
        let mut bytes = self.header(hot.len() as u32);
        for &(layer, expert, weight) in hot {
            bytes.extend((layer as u32 * self.n_experts + expert).to_le_bytes());
            bytes.extend(weight.to_le_bytes());
        }
        bytes.extend(Sha256::digest(&bytes));
        bytes
    }

    /// Reads bytes that anyone may have written.
    fn decode(&self, bytes: &[u8]) -> Result<Vec<Hot>, &'static str> {
        let Some((content, sum)) = bytes.split_last_chunk::<SUM_BYTES>() else {
            return Err("the file is cut off");
        };
        let Some((header, entries)) = content.split_at_checked(HEADER_BYTES) else {
            return Err("the file is cut off");
        };
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if header != self.header(entries.len() as u32) {
            return Err("it is not of this model, or of another version");
        }
        if !rest.is_empty() || *sum != <[u8; SUM_BYTES]>::from(Sha256::digest(content)) {
            return Err("the file is damaged");
        }
        let mut seen = HashSet::new();
        let mut hot = Vec::with_capacity(entries.len());
        for &[k0, k1, k2, k3, w0, w1, w2, w3] in entries {
            let key = u32::from_le_bytes([k0, k1, k2, k3]);
            let weight = f32::from_le_bytes([w0, w1, w2, w3]);
            let (layer, expert) = (key.checked_div(self.n_experts), key.checked_rem(self.n_experts));
            let (Some(layer), Some(expert)) = (layer, expert) else {
                return Err("it names experts of a model without");
            };
            if layer >= self.n_layers || !(weight >= 0.0 && weight.is_finite()) || !seen.insert(key) {
                return Err("it names an expert that there is not, or one twice, or no use of it");
            }
            hot.push((layer as usize, expert, weight));
        }
        Ok(hot)
    }
}

fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Removes the files that are too many, the oldest first: those of other models, and those that a process which was killed
/// had half written.
fn forget_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(SUFFIX))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort_unstable();
    for (_, path) in files.iter().rev().skip(MAX_FILES) {
        if let Err(error) = fs::remove_file(path) {
            tracing::debug!(path = %path.display(), %error, "an old warm start cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests;
