//! Writes a plan to a file: in strips, on several threads, the head last.

use super::SynthesizeError;
use super::content::Content;
use super::options::Options;
use super::plan::{Plan, Tensor};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

/// Bytes of a strip at most, if that is a row. Random numbers begin anew in each, so a change alters the files.
const STRIP_BYTES: usize = 4 << 20;
/// Free space to leave on the drive.
const SPARE_BYTES: u64 = 64 << 20;

/// What was written.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub tensors: usize,
    pub bytes: u64,
    /// Until all was written.
    pub seconds: f64,
    /// Until all was on the drive.
    pub synced_seconds: f64,
}

/// Some rows of a tensor, written in one piece.
struct Strip<'a> {
    tensor: &'a Tensor,
    first_row: usize,
    rows: usize,
}

/// Writes the file, or the tensors of `--only` into it.
///
/// The head is written last, so that a file that was broken off is not mistaken for a model.
pub fn write(plan: &Plan, options: &Options) -> Result<Done, SynthesizeError> {
    let started = Instant::now();
    let wanted = |tensor: &&Tensor| options.only.as_ref().is_none_or(|part| tensor.name.contains(part));
    let tensors: Vec<&Tensor> = plan.tensors.iter().filter(wanted).collect();
    if let (Some(part), true) = (&options.only, tensors.is_empty()) {
        return Err(SynthesizeError::NoTensor { part: part.clone() });
    }
    let path = options.path.as_path();
    let mut file = match &options.only {
        Some(_) => open(plan, path)?,
        None => create(plan, options)?,
    };
    let strips: Vec<Strip> = tensors.iter().flat_map(|tensor| strips(tensor)).collect();
    let bytes = tensors.iter().map(|tensor| tensor.bytes()).sum();
    fill(plan, &strips, path, options.n_threads, Progress::new(bytes))?;
    if options.only.is_none() {
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&plan.head)).map_err(failed("write", path))?;
    }
    let seconds = started.elapsed().as_secs_f64();
    file.sync_all().map_err(failed("write", path))?;
    Ok(Done { tensors: tensors.len(), bytes, seconds, synced_seconds: started.elapsed().as_secs_f64() })
}

/// Makes a file of the full length, after a look at the free space.
fn create(plan: &Plan, options: &Options) -> Result<File, SynthesizeError> {
    let path = options.path.as_path();
    let old_bytes = match path.metadata() {
        Ok(_) if !options.force => return Err(SynthesizeError::Exists { path: path.into() }),
        Ok(old) => old.len(),
        Err(_) => 0,
    };
    let needed = plan.file_bytes + SPARE_BYTES;
    if let Some(free) = free_bytes(path).map(|free| free.saturating_add(old_bytes))
        && free < needed
    {
        return Err(SynthesizeError::Space { path: path.into(), needed_mib: needed >> 20, free_mib: free >> 20 });
    }
    let file = File::create(path).map_err(failed("create", path))?;
    file.set_len(plan.file_bytes).map_err(failed("lengthen", path))?;
    reserve(&file, plan.file_bytes);
    Ok(file)
}

/// Takes the space at once, so that the file lies in few pieces although threads write it in strips.
#[cfg(target_os = "linux")]
fn reserve(file: &File, bytes: u64) {
    // Some file systems cannot; then each write takes its own.
    _ = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _bytes: u64) {}

/// Opens a file that has this plan's head.
fn open(plan: &Plan, path: &Path) -> Result<File, SynthesizeError> {
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed("open", path))?;
    let other = || SynthesizeError::OtherFile { path: path.into() };
    if file.metadata().map_err(failed("read", path))?.len() != plan.file_bytes {
        return Err(other());
    }
    let mut head = vec![0; plan.head.len()];
    file.read_exact(&mut head).map_err(failed("read", path))?;
    if head == plan.head { Ok(file) } else { Err(other()) }
}

fn strips<'a>(tensor: &'a Tensor) -> impl Iterator<Item = Strip<'a>> {
    let rows = (STRIP_BYTES / tensor.row_bytes).max(1);
    let strip = move |first_row| Strip { tensor, first_row, rows: rows.min(tensor.rows() - first_row) };
    (0..tensor.rows()).step_by(rows).map(strip)
}

/// Fills and writes all strips; any thread takes the next one.
fn fill(
    plan: &Plan,
    strips: &[Strip],
    path: &Path,
    n_threads: usize,
    mut progress: Progress,
) -> Result<(), SynthesizeError> {
    let content = Content::new(plan);
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            let sender = sender.clone();
            scope.spawn(|| work(&content, strips, path, &next, sender));
        }
        drop(sender);
        for result in results {
            match result {
                Ok(bytes) => progress.add(bytes),
                Err(error) => {
                    next.store(strips.len(), Ordering::Relaxed); // No thread begins another strip.
                    return Err(error);
                }
            }
        }
        Ok(())
    })
}

/// One thread, with a file handle of its own: positions are those of handles.
fn work(
    content: &Content,
    strips: &[Strip],
    path: &Path,
    next: &AtomicUsize,
    sender: Sender<Result<u64, SynthesizeError>>,
) {
    let mut bytes = Vec::new();
    let mut file = OpenOptions::new().write(true).open(path).map_err(failed("open", path));
    while let Some(strip) = strips.get(next.fetch_add(1, Ordering::Relaxed)) {
        let result = match &mut file {
            Ok(file) => write_strip(content, strip, file, &mut bytes).map_err(failed("write", path)),
            Err(_) => break,
        };
        // Nobody listens after an error, and then there is nothing left to do.
        if sender.send(result).is_err() {
            return;
        }
    }
    if let Err(error) = file {
        _ = sender.send(Err(error)); // As above.
    }
}

fn write_strip(content: &Content, strip: &Strip, file: &mut File, bytes: &mut Vec<u8>) -> std::io::Result<u64> {
    let Strip { tensor, first_row, rows } = *strip;
    bytes.resize(rows * tensor.row_bytes, 0);
    content.fill(tensor, first_row, bytes);
    file.seek(SeekFrom::Start(tensor.offset + first_row as u64 * tensor.row_bytes as u64))?;
    file.write_all(bytes)?;
    Ok(bytes.len() as u64)
}

fn failed(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> SynthesizeError {
    move |source| SynthesizeError::Io { action, path: path.into(), source }
}

/// Bytes that this user may still write beside `path`, where the system says.
#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let drive = rustix::fs::statvfs(folder).ok()?;
    Some(drive.f_bavail.saturating_mul(drive.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

/// Says on stderr how far the file is: often on a terminal, seldom in a log.
struct Progress {
    total: u64,
    done: u64,
    started: Instant,
    said: Instant,
    terminal: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        let now = Instant::now();
        Self { total, done: 0, started: now, said: now, terminal: std::io::stderr().is_terminal() }
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let interval = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
        let last = self.terminal && self.done == self.total;
        if self.said.elapsed() < interval && !last {
            return;
        }
        self.said = Instant::now();
        let (done, total) = (self.done as f64 / 1e9, self.total as f64 / 1e9);
        let rate = self.done as f64 / 1e6 / self.started.elapsed().as_secs_f64();
        let (before, after) = if self.terminal { ("\r", if last { "\n" } else { "" }) } else { ("", "\n") };
        eprint!("{before}{done:.2} of {total:.2} GB, {rate:.0} MB/s{after}");
    }
}
