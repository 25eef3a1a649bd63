//! Reads recorded choices of experts, as CSV.
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
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use crate::store::policy::{Trace, Visit};

/// Most experts of all layers that a trace may have: a hundred times the largest known model's.
const MAX_KEYS: usize = 1 << 22;

/// Why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The header lacks a column, or there is no header.
    #[error("line {line}: the header has no column `{column}`; expected token,layer,rank,expert,weight")]
    NoColumn {
        /// Line number from 1.
        line: usize,
        /// What was looked for.
        column: &'static str,
    },
    /// A field is absent or no number.
    #[error("line {line}: `{column}` is `{found}`, expected a whole number")]
    NotANumber {
        /// Line number from 1.
        line: usize,
        /// Column of the field.
        column: &'static str,
        /// What is there.
        found: String,
    },
    /// An id is not below the number that a comment gives.
    #[error("line {line}: {column} {found} does not exist, the comments name {n} of them, counted from 0")]
    OutOfRange {
        /// Line number from 1.
        line: usize,
        /// `layer` or `expert`.
        column: &'static str,
        /// The id.
        found: u32,
        /// What the comments say.
        n: u32,
    },
    /// Layers times experts is too much to be true.
    #[error("{n_layers} layers of {n_experts} experts are more than the {MAX_KEYS} experts that a trace may have")]
    TooLarge {
        /// Layers.
        n_layers: u64,
        /// Experts of a layer.
        n_experts: u64,
    },
    /// There are no rows.
    #[error("the trace has no choices; expected rows below the header")]
    Empty,
}

/// Reads a trace from CSV.
///
/// # Errors
/// See [`TraceError`].
pub fn parse(text: &str) -> Result<Trace, TraceError> {
    let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let mut stated = Stated::default();
    let columns = loop {
        let (line, number) = lines.next().ok_or(TraceError::NoColumn { line: 1, column: "layer" })?;
        match line.strip_prefix('#') {
            Some(comment) => stated.read(comment, number)?,
            None => break Columns::find(line, number)?,
        }
    };
    let mut rows = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.starts_with('#')) {
        let row = columns.read(line, number)?;
        for (column, found, n) in [("layer", row.layer, stated.n_layers), ("expert", row.expert, stated.n_experts)] {
            if let Some(n) = n.filter(|n| found >= *n) {
                return Err(TraceError::OutOfRange { line: number, column, found, n });
            }
        }
        rows.push(row);
    }
    assemble(&rows, &stated)
}

fn assemble(rows: &[Row], stated: &Stated) -> Result<Trace, TraceError> {
    let count = |stated: Option<u32>, highest: Option<u32>| {
        stated.map(u64::from).or(highest.map(|id| u64::from(id).saturating_add(1))).ok_or(TraceError::Empty)
    };
    let n_layers = count(stated.n_layers, rows.iter().map(|row| row.layer).max())?;
    let n_experts = count(stated.n_experts, rows.iter().map(|row| row.expert).max())?;
    if rows.is_empty() {
        return Err(TraceError::Empty);
    }
    if n_layers.saturating_mul(n_experts) > MAX_KEYS as u64 {
        return Err(TraceError::TooLarge { n_layers, n_experts });
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
    fn read(&mut self, comment: &str, line: usize) -> Result<(), TraceError> {
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
    fn find(header: &str, line: usize) -> Result<Self, TraceError> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |name: &str| names.iter().position(|found| *found == name);
        let need = |found: Option<usize>, column| found.ok_or(TraceError::NoColumn { line, column });
        Ok(Self {
            token: need(find("token").or_else(|| find("step")), "token")?,
            layer: need(find("layer"), "layer")?,
            expert: need(find("expert"), "expert")?,
            phase: find("phase"),
        })
    }

    fn read(&self, row: &str, line: usize) -> Result<Row, TraceError> {
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

fn number(text: &str, line: usize, column: &'static str) -> Result<u32, TraceError> {
    text.trim().parse().map_err(|_| TraceError::NotANumber { line, column, found: text.to_owned() })
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
            ("token,layer,expert\n", "the trace has no choices; expected rows below the header"),
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
