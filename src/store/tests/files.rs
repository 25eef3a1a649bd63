//! The store over real files.

use std::fs::{self, File};
use std::path::PathBuf;

use super::*;
use crate::gguf::Shard;
use crate::store::{ALIGNMENT, FileReader, PageCache};

/// Both files of the test's model, in a folder that goes with it.
struct Model {
    folder: tempfile::TempDir,
}

impl Model {
    fn new() -> Self {
        let model = Self { folder: tempfile::tempdir().unwrap() };
        for file in 0..2 {
            fs::write(model.path(file), bytes(file, model_len(file))).unwrap();
        }
        model
    }

    fn path(&self, file: usize) -> PathBuf {
        self.folder.path().join(format!("{file}.gguf"))
    }

    fn shards(&self) -> Vec<Shard> {
        (0..2).map(|file| shard(self.path(file))).collect()
    }
}

fn shard(path: PathBuf) -> Shard {
    let file = File::open(&path).unwrap();
    Shard { path, len: file.metadata().unwrap().len(), file }
}

fn bytes(file: usize, len: u64) -> Vec<u8> {
    (0..len).map(|at| pattern(file, at)).collect()
}

/// A file ends with the last expert in it, at no round number.
fn model_len(file: usize) -> u64 {
    let last_layer = (0..N_LAYERS).rfind(|layer| layer % 2 == file).unwrap();
    let last = place(last_layer, N_EXPERTS - 1, MATRICES.len() - 1);
    last.offset + last.len
}

fn store_of(shards: &[Shard], page_cache: PageCache) -> Store {
    let reader = FileReader::open(shards, page_cache).unwrap();
    Store::new(Arc::new(reader), table(), &options(2, ALIGNMENT)).unwrap()
}

fn fetch_all(store: &Store) {
    for (layer, expert) in (0..N_LAYERS).flat_map(|layer| (0..N_EXPERTS).map(move |expert| (layer, expert))) {
        fetch(store, layer, expert).unwrap();
    }
}

#[test]
fn experts_are_read_with_and_without_the_page_cache() {
    let model = Model::new();
    for page_cache in [PageCache::Bypass, PageCache::Use] {
        fetch_all(&store_of(&model.shards(), page_cache));
    }
    assert!(!FileReader::open(&model.shards(), PageCache::Use).unwrap().is_direct());
}

#[test]
fn files_that_are_replaced_or_removed_go_on_being_used() {
    let model = Model::new();
    let shards = model.shards();
    // Once before the store opens the files anew, and once while it runs.
    let other = model.folder.path().join("other");
    fs::write(&other, vec![0; 1 << 20]).unwrap();
    fs::rename(&other, model.path(0)).unwrap();
    for page_cache in [PageCache::Bypass, PageCache::Use] {
        let store = store_of(&shards, page_cache);
        fetch(&store, 0, 0).unwrap();
        fetch(&store, 1, 0).unwrap();
        if page_cache == PageCache::Use {
            fs::remove_file(model.path(1)).unwrap();
        }
        fetch_all(&store);
    }
}

#[test]
fn a_file_cut_short_while_it_is_used_is_an_error_and_the_rest_goes_on() {
    let model = Model::new();
    for page_cache in [PageCache::Bypass, PageCache::Use] {
        fs::write(model.path(1), bytes(1, model_len(1))).unwrap();
        let store = store_of(&model.shards(), page_cache);
        fetch(&store, 1, 7).unwrap();
        let end = place(1, 4, 2).offset + 5;
        File::options().write(true).open(model.path(1)).unwrap().set_len(end).unwrap();
        let error = fetch(&store, 1, 4).unwrap_err();
        assert!(matches!(error, StoreError::EndOfFile { layer: 1, expert: 4, end: at, .. } if at == end), "{error}");
        fetch(&store, 1, 3).unwrap();
        fetch(&store, 0, 4).unwrap();
    }
}

#[test]
fn reads_at_odd_places_and_lengths_give_the_same_bytes() {
    let model = Model::new();
    let reader = FileReader::open(&model.shards(), PageCache::Bypass).unwrap();
    let expected = bytes(0, model_len(0));
    for (offset, len) in [(0, 4096), (1, 4096), (4096, 100), (8191, 3)] {
        let mut buf = vec![0; len];
        assert_eq!(reader.read_at(0, offset as u64, &mut buf).unwrap(), len);
        assert_eq!(buf, expected[offset..offset + len]);
    }
    assert_eq!(reader.read_at(2, 0, &mut [0]).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_system_without_direct_reads_is_read_buffered() {
    // procfs refuses to open files for direct reads.
    let shards = [shard("/proc/version".into())];
    let reader = FileReader::open(&shards, PageCache::Bypass).unwrap();
    assert!(!reader.is_direct());
    let mut buf = vec![0; 3 * ALIGNMENT];
    let start = buf.as_ptr().align_offset(ALIGNMENT);
    let n = reader.read_at(0, 0, &mut buf[start..start + ALIGNMENT]).unwrap();
    assert_eq!(buf[start..start + n], *fs::read("/proc/version").unwrap());
}

#[test]
#[cfg(unix)]
fn direct_reads_that_are_refused_are_made_buffered_from_then_on() {
    let model = Model::new();
    let reader = FileReader::open(&model.shards(), PageCache::Bypass).unwrap();
    let mut buf = vec![0; 2 * ALIGNMENT];
    let start = buf.as_ptr().align_offset(ALIGNMENT);
    let aligned = &mut buf[start..start + ALIGNMENT];
    // The system takes this offset for negative, an invalid argument as an alignment that it does not like is.
    assert_eq!(reader.read_at(0, 1 << 63, aligned).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(!reader.is_direct());
    assert_eq!(reader.read_at(0, 4096, aligned).unwrap(), ALIGNMENT);
    assert!(aligned.iter().zip(4096..).all(|(&byte, at)| byte == pattern(0, at)));
}

#[test]
#[cfg(unix)]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // A folder opens like a file, but has no bytes.
    let shards = [shard(folder.path().into())];
    let reader = FileReader::open(&shards, PageCache::Use).unwrap();
    let extent = ExpertExtent::new(&[FileRange { file: 0, offset: 0, len: 10 }]);
    let experts = ExpertTable::new(1, vec![extent]).unwrap();
    let store = Store::new(Arc::new(reader), experts, &StoreOptions::new(Budget::Cache(0), 1)).unwrap();
    let ticket = store.request(0, 0).unwrap();
    let message = store.wait(&ticket, &never).unwrap_err().to_string();
    assert!(message.starts_with(folder.path().to_str().unwrap()), "{message}");
}
