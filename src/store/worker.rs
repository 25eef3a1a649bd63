//! What an I/O thread does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::io::{Cause, fill};
use super::shared::Shared;
use super::state::{Job, ReadFailure};

/// Reads what is queued until the store goes away.
///
/// A panic, for example of the reader, fails the expert that was being read and nothing else.
pub(super) fn run(shared: &Shared) {
    while catch_unwind(AssertUnwindSafe(|| serve(shared))).is_err() {
        tracing::error!("an I/O thread panicked and goes on");
    }
}

fn serve(shared: &Shared) {
    while let Some(job) = shared.next_job() {
        let mut read = Read { shared, job: Some(job), since: Instant::now() };
        let result = read.fill();
        read.finish(result);
    }
}

/// A read that is going on. Dropped by a panic, it tells those who wait.
struct Read<'a> {
    shared: &'a Shared,
    /// Present until it is finished.
    job: Option<Job>,
    since: Instant,
}

impl Read<'_> {
    fn fill(&mut self) -> Result<u64, Cause> {
        let Some(Job { span, fill: memory, .. }) = &mut self.job else { unreachable!("not finished yet") };
        fill(&*self.shared.reader, span, memory, || self.shared.is_stopping())
    }

    fn finish(&mut self, result: Result<u64, Cause>) {
        let Some(job) = self.job.take() else { return };
        let result = result.map_err(|cause| ReadFailure { file: job.span.file, cause });
        self.shared.finish(job.end(), result, self.since);
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        self.finish(Err(Cause::Panicked));
    }
}
