//! The CSV format: choices of experts, a row each.
//!
//! A trace has comment lines, a header, and one row for each chosen expert, in the order of the choices:
//!
//! ```text
//! # n_layer=48 n_expert=128 n_prompt=28
//! token,layer,rank,expert,weight
//! 0,0,0,49,0.221297
//! ```
//! `token` counts positions from 0, `rank` is 0 for the heaviest, `weight` is as applied. Columns are found by name:
//! `layer`, `expert` and one of `token` and `step` are needed, others are skipped. Comments may give the numbers of
//! layers and experts (else the highest ids do) and of prompt tokens; or a column `phase` is 0 for prompt tokens, as in
//! the traces (`# route_trace v1`) of Helldez/BigMoeOnEdge. Rows of the prompt come first.

use super::{ContentError, Header, MAX_CHOICES, MAX_KEYS};
use crate::routing::{Choice, RoutingRule};
use crate::store::policy::{Trace, Visit};
use std::io::{BufRead, Read, Write};

/// Longest line that is read; a row of a trace has less than a hundred bytes, a comment may name a file.
const MAX_LINE_BYTES: usize = 1 << 16;

/// Reads a trace from CSV.
///
/// # Errors
/// See [`ContentError`].
pub fn parse(text: &str) -> Result<Trace, ContentError> {
    read(text.as_bytes())
}

/// Reads a trace from CSV, line by line.
pub(super) fn read(input: impl BufRead) -> Result<Trace, ContentError> {
    let mut lines = Lines { input, line: Vec::new(), number: 0 };
    let mut stated = Stated::default();
    let columns = loop {
        let (line, number) = lines.next()?.ok_or(ContentError::NoColumn { line: 1, column: "layer" })?;
        match line.strip_prefix('#') {
            Some(comment) => stated.read(comment, number)?,
            None => break Columns::find(line, number)?,
        }
    };
    let mut rows = Vec::new();
    while let Some((line, number)) = lines.next()? {
        if line.starts_with('#') {
            continue;
        }
        let row = columns.read(line, number)?;
        for (column, found, n) in [("layer", row.layer, stated.n_layers), ("expert", row.expert, stated.n_experts)] {
            if let Some(n) = n.filter(|n| found >= *n) {
                return Err(ContentError::OutOfRange { line: number, column, found, n });
            }
        }
        if rows.len() >= MAX_CHOICES {
            return Err(ContentError::TooLong);
        }
        rows.push(row);
    }
    assemble(&rows, &stated)
}

/// Lines that are not blank, with their numbers.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<(&str, usize)>, ContentError> {
        let not_text = |line| ContentError::NotText { line, most: MAX_LINE_BYTES };
        loop {
            self.line.clear();
            self.number = self.number.saturating_add(1);
            // One more than may be, so that a line that is too long shows.
            let most = MAX_LINE_BYTES.saturating_add(1) as u64;
            match self.input.by_ref().take(most).read_until(b'\n', &mut self.line)? {
                0 => return Ok(None),
                n if n > MAX_LINE_BYTES => return Err(not_text(self.number)),
                _ if self.line.trim_ascii().is_empty() => {}
                _ => break,
            }
        }
        match std::str::from_utf8(&self.line) {
            Ok(line) => Ok(Some((line.trim_end(), self.number))),
            Err(_) => Err(not_text(self.number)),
        }
    }
}

/// Writes the comments and names of columns that come first.
pub(super) fn write_header(header: &Header, out: &mut Vec<u8>) {
    let Header { n_layers, n_experts, rule: RoutingRule { n_used, .. }, n_prompt } = header;
    let text = format!(
        "# n_layer={n_layers} n_expert={n_experts} n_expert_used={n_used} n_prompt={n_prompt}\n\
         token,layer,rank,expert,weight\n"
    );
    out.extend_from_slice(text.as_bytes());
}

/// Writes the rows of a token with its `choices`, `[n_layers, n_used]`. Weights are read back as they were, to the bit.
pub(super) fn write_token(
    token: usize,
    choices: &[Choice],
    n_used: usize,
    out: &mut impl Write,
) -> std::io::Result<()> {
    for (layer, choices) in choices.chunks_exact(n_used).enumerate() {
        for (rank, Choice { expert, weight }) in choices.iter().enumerate() {
            writeln!(out, "{token},{layer},{rank},{expert},{weight}")?;
        }
    }
    Ok(())
}

fn assemble(rows: &[Row], stated: &Stated) -> Result<Trace, ContentError> {
    let count = |stated: Option<u32>, highest: Option<u32>| {
        stated.map(u64::from).or(highest.map(|id| u64::from(id).saturating_add(1))).ok_or(ContentError::Empty)
    };
    let n_layers = count(stated.n_layers, rows.iter().map(|row| row.layer).max())?;
    let n_experts = count(stated.n_experts, rows.iter().map(|row| row.expert).max())?;
    if rows.is_empty() {
        return Err(ContentError::Empty);
    }
    if n_layers.saturating_mul(n_experts) > MAX_KEYS as u64 {
        return Err(ContentError::TooLarge { n_layers, n_experts });
    }
    let is_prompt = |row: &&Row| match row.phase {
        Some(phase) => phase == 0,
        None => stated.n_prompt.is_some_and(|n_prompt| row.token < n_prompt),
    };
    let mut trace = Trace {
        n_layers: n_layers as usize,
        n_experts: n_experts as usize,
        keys: Vec::with_capacity(rows.len()),
        visits: Vec::new(),
        n_prompt_keys: rows.iter().take_while(is_prompt).count(),
    };
    for visit in rows.chunk_by(|a, b| (a.token, a.layer, a.phase) == (b.token, b.layer, b.phase)) {
        // Below MAX_KEYS, as layer and expert are below their counts.
        trace
            .keys
            .extend(visit.iter().map(|row| row.layer.saturating_mul(n_experts as u32).saturating_add(row.expert)));
        let token = visit.first().map_or(0, |row| row.token);
        trace.visits.push(Visit { token, end: trace.keys.len() });
    }
    Ok(trace)
}

/// What comments say, as `name=number`.
#[derive(Default)]
struct Stated {
    n_layers: Option<u32>,
    n_experts: Option<u32>,
    n_prompt: Option<u32>,
}

impl Stated {
    fn read(&mut self, comment: &str, line: usize) -> Result<(), ContentError> {
        for (name, value) in comment.split_whitespace().filter_map(|word| word.split_once('=')) {
            let (column, place) = match name {
                "n_layer" => ("n_layer", &mut self.n_layers),
                "n_expert" => ("n_expert", &mut self.n_experts),
                "n_prompt" => ("n_prompt", &mut self.n_prompt),
                _ => continue,
            };
            *place = Some(number(value, line, column)?);
        }
        Ok(())
    }
}

struct Row {
    token: u32,
    layer: u32,
    expert: u32,
    phase: Option<u32>,
}

/// Where the columns are.
struct Columns {
    token: usize,
    layer: usize,
    expert: usize,
    phase: Option<usize>,
}

impl Columns {
    fn find(header: &str, line: usize) -> Result<Self, ContentError> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |name: &str| names.iter().position(|found| *found == name);
        let need = |found: Option<usize>, column| found.ok_or(ContentError::NoColumn { line, column });
        Ok(Self {
            token: need(find("token").or_else(|| find("step")), "token")?,
            layer: need(find("layer"), "layer")?,
            expert: need(find("expert"), "expert")?,
            phase: find("phase"),
        })
    }

    fn read(&self, row: &str, line: usize) -> Result<Row, ContentError> {
        let fields: Vec<&str> = row.split(',').collect();
        let field = |at: usize, column| number(fields.get(at).copied().unwrap_or_default(), line, column);
        Ok(Row {
            token: field(self.token, "token")?,
            layer: field(self.layer, "layer")?,
            expert: field(self.expert, "expert")?,
            phase: self.phase.map(|at| field(at, "phase")).transpose()?,
        })
    }
}

fn number(text: &str, line: usize, column: &'static str) -> Result<u32, ContentError> {
    text.trim().parse().map_err(|_| ContentError::NotANumber { line, column, found: text.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_visit_by_visit() {
        let trace = parse(
            "# n_layer=2 n_expert=4 n_prompt=1\n\
             token,layer,rank,expert,weight\n\
             0,0,0,3,0.6\n0,0,1,1,0.4\n0,1,0,0,0.7\n0,1,1,2,0.3\n\
             1,0,0,1,0.5\n1,0,1,0,0.5\n",
        )
        .unwrap();
        assert_eq!((trace.n_layers, trace.n_experts, trace.n_prompt_keys), (2, 4, 4));
        assert_eq!(trace.keys, [3, 1, 4, 6, 1, 0]);
        assert_eq!(trace.visits, [Visit { token: 0, end: 2 }, Visit { token: 0, end: 4 }, Visit { token: 1, end: 6 }]);
    }

    #[test]
    fn traces_of_another_program_are_read_by_the_names_of_their_columns() {
        let trace = parse(
            "# route_trace v1\n# model=m.gguf n_layer=3 n_expert=8 n_expert_used=1\n# layer=0 expert_bytes=9\n\
             turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n\
             0,0,0,0,0,7,1,0,9\n0,0,1,0,0,7,1,0,9\n0,1,2,2,0,5,1,0,9\n",
        )
        .unwrap();
        assert_eq!((trace.n_layers, trace.n_experts, trace.n_prompt_keys), (3, 8, 2));
        assert_eq!(trace.keys, [7, 7, 21]);
        assert_eq!(trace.visits.len(), 3);
    }

    #[test]
    fn without_comments_the_highest_ids_give_the_size_and_there_is_no_prompt() {
        let trace = parse("token,layer,expert\r\n0,4,9\r\n").unwrap();
        assert_eq!((trace.n_layers, trace.n_experts, trace.n_prompt_keys), (5, 10, 0));
        assert_eq!(trace.keys, [49]);
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        let cases = [
            ("", "line 1: the header has no column `layer`; expected token,layer,rank,expert,weight"),
            ("token,layer\n", "line 1: the header has no column `expert`; expected token,layer,rank,expert,weight"),
            ("layer,expert\n", "line 1: the header has no column `token`; expected token,layer,rank,expert,weight"),
            ("token,layer,expert\n", "the trace holds no choices; expected at least one whole token"),
            ("token,layer,expert\n0,0\n", "line 2: `expert` is ``, expected a whole number"),
            ("token,layer,expert\n0,-1,2\n", "line 2: `layer` is `-1`, expected a whole number"),
            ("# n_layer=x\n", "line 1: `n_layer` is `x`, expected a whole number"),
            (
                "# n_layer=2 n_expert=4\ntoken,layer,expert\n\n0,1,4\n",
                "line 4: expert 4 does not exist, the comments name 4 of them, counted from 0",
            ),
            (
                "token,layer,expert\n0,4294967295,4294967295\n",
                "4294967296 layers of 4294967296 experts are more than the 4194304 experts that a trace may have",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text:?}");
        }
    }
}
