//! From router logits to choices, file to file.

use super::file::{Source, in_file, open, sniff};
use super::{LogitsReader, TraceError, csv};
use std::fs::{File, canonicalize};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes the choices that follow from the binary trace `path` to the CSV file `out`, and says of how many tokens.
///
/// # Errors
/// Where `path` is no binary trace, one of the files cannot be read or written, or it is cancelled.
pub fn convert_to_csv(path: &Path, out: &Path, cancelled: &dyn Fn() -> bool) -> Result<usize, TraceError> {
    let content = |source| in_file(path, source, cancelled);
    let mut reader = match sniff(open(path, cancelled)?).map_err(content)? {
        Source::Binary(input) => LogitsReader::new(input).map_err(content)?,
        Source::Csv(_) => return Err(TraceError::NotBinary { path: path.to_owned() }),
    };
    // Making `out` would empty what is to be read. Where one of them is absent, they differ.
    if let (Ok(from), Ok(to)) = (canonicalize(path), canonicalize(out))
        && from == to
    {
        return Err(TraceError::OntoItself { path: path.to_owned() });
    }
    let written = |source| TraceError::Write { path: out.to_owned(), source };
    let mut file = BufWriter::with_capacity(1 << 20, File::create(out).map_err(written)?);
    let (header, mut first) = (*reader.header(), Vec::new());
    csv::write_header(&header, &mut first);
    file.write_all(&first).map_err(written)?;
    let (mut n_tokens, mut choices) = (0_usize, Vec::new());
    while reader.next_choices(&mut choices).map_err(content)?.is_some() {
        csv::write_token(n_tokens, &choices, header.rule.n_used, &mut file).map_err(written)?;
        n_tokens = n_tokens.saturating_add(1);
    }
    file.flush().map_err(written)?;
    Ok(n_tokens)
}
