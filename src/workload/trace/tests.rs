use super::*;
use crate::routing::RoutingRule;
use crate::store::policy::{PolicyKind, belady, replay};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

const HEADER: Header =
    Header { n_layers: 2, n_experts: 3, rule: RoutingRule { n_used: 2, normalise: true, scale: 1.0 }, n_prompt: 1 };

/// Two tokens: the first takes experts 2 and 1, then 0 and 1; the second 0 and 2 twice.
fn binary() -> Vec<u8> {
    let mut bytes = HEADER.encode().to_vec();
    for (id, logits) in [(7_u32, [0.0_f32, 1.0, 2.0, 3.0, 2.0, 1.0]), (9, [5.0, -1.0, 2.0, 0.5, -0.5, 0.0])] {
        bytes.extend(id.to_le_bytes());
        logits.iter().for_each(|logit| bytes.extend(logit.to_le_bytes()));
    }
    bytes
}

const CSV: &str = "# n_layer=2 n_expert=3 n_prompt=1\ntoken,layer,rank,expert,weight\n\
                   0,0,0,2,0.7\n0,0,1,1,0.3\n0,1,0,0,0.7\n0,1,1,1,0.3\n\
                   1,0,0,0,0.9\n1,0,1,2,0.1\n1,1,0,0,0.6\n1,1,1,2,0.4\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn a_file_is_what_its_bytes_say_compressed_or_not() {
    for bytes in [binary(), CSV.into(), gzip(&binary()), gzip(CSV.as_bytes())] {
        let (_folder, path) = file(&bytes);
        let trace = read_trace(&path).unwrap();
        assert_eq!((trace.n_layers, trace.n_experts, trace.n_prompt_keys), (2, 3, 4));
        assert_eq!(trace.keys, [2, 1, 3, 4, 0, 2, 3, 5]);
        let visits: Vec<_> = trace.visits.iter().map(|visit| (visit.token, visit.end)).collect();
        assert_eq!(visits, [(0, 2), (0, 4), (1, 6), (1, 8)]);
    }
}

#[test]
fn what_a_trace_holds_is_told_in_numbers() {
    let (_folder, path) = file(&binary());
    let expected = TraceInfo {
        kind: TraceKind::Logits,
        n_layers: 2,
        n_experts: 3,
        n_used: 2,
        prompt_tokens: 1,
        tokens: 1,
        n_choices: 8,
        left_over_bytes: 0,
    };
    assert_eq!(inspect_trace(&path, &|| false).unwrap(), expected);
    let (_folder, path) = file(CSV.as_bytes());
    assert_eq!(inspect_trace(&path, &|| false).unwrap(), TraceInfo { kind: TraceKind::Choices, ..expected });
}

#[test]
fn a_binary_trace_cut_off_anywhere_is_read_up_to_its_last_whole_token() {
    let whole = binary();
    let record = (whole.len() - 40) / 2;
    for len in 40..whole.len() {
        let (_folder, path) = file(&whole[..len]);
        let n_whole = (len - 40) / record;
        if n_whole == 0 {
            let message = read_trace(&path).unwrap_err().to_string();
            assert!(message.ends_with("the trace holds no choices; expected at least one whole token"), "{message}");
            continue;
        }
        let info = inspect_trace(&path, &|| false).unwrap();
        assert_eq!((info.prompt_tokens, info.tokens, info.left_over_bytes), (1, 0, len - 40 - record));
    }
}

#[test]
fn a_header_that_cannot_be_is_refused_by_name() {
    let with = |at: usize, value: u32| {
        let mut bytes = binary();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let cases = [
        (
            binary()[..39].to_vec(),
            "the header of a binary trace is 40 bytes long, the file ends after 39; record it again",
        ),
        (with(8, 2), "version 2 of the binary format is not known, only 1; a newer clutor reads it"),
        (
            with(12, 0),
            "the header is wrong: the number of layers is 0, expected at least 1; the file is damaged, record it again",
        ),
        (with(12, u32::MAX), "4294967295 layers of 3 experts are more than the 4194304 experts that a trace may have"),
        (
            with(20, 4),
            "the header is wrong: the number of experts used is 4, expected 1 to 3; the file is damaged, \
             record it again",
        ),
        (
            [with(16, 2000)[..20].to_vec(), with(20, 1025)[20..].to_vec()].concat(),
            "the header is wrong: the number of experts used is 1025, expected 1 to 1024; the file is damaged, record it \
             again",
        ),
        (
            with(24, 2),
            "the header is wrong: whether weights are normalised is 2, expected 0 or 1; the file is damaged, record it again",
        ),
        (
            with(28, f32::NAN.to_bits()),
            "the header is wrong: the scale of weights is NaN, expected a finite number; the file is damaged, record it again",
        ),
        (with(36, 1), "the header is wrong: the reserved field is 1, expected 0; the file is damaged, record it again"),
    ];
    for (bytes, message) in cases {
        let (_folder, path) = file(&bytes);
        assert_eq!(read_trace(&path).unwrap_err().to_string(), format!("{}: {message}", path.display()));
    }
}

#[test]
fn bytes_changed_at_random_never_end_in_a_panic() {
    use proptest::test_runner::{Config, TestRunner};
    let bases = [binary(), CSV.into(), gzip(&binary()), gzip(CSV.as_bytes())];
    let cases = (0..4_usize, proptest::collection::vec((0..200_usize, 0..=255_u8), 1..6), 0..200_usize);
    TestRunner::new(Config::with_cases(500))
        .run(&cases, |(base, changes, len)| {
            let mut bytes = bases[base].clone();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(len.max(1));
            let (_folder, path) = file(&bytes);
            // Whatever it says, it says it in order.
            if let Ok(trace) = read_trace(&path) {
                assert!(trace.keys.iter().all(|key| (*key as usize) < trace.n_layers * trace.n_experts));
                assert!(trace.visits.last().is_some_and(|visit| visit.end == trace.keys.len()));
                if trace.n_layers * trace.n_experts < 1 << 12 {
                    let best = belady(&trace, 2);
                    let found = replay(&trace, PolicyKind::default(), 2);
                    assert_eq!(best.accesses + best.prompt_accesses, found.accesses + found.prompt_accesses);
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let cases: [(&[u8], &str); 3] = [
        (b"GGUF\x03\0\0\0", "line 1: the header has no column `token`; expected token,layer,rank,expert,weight"),
        (b"\xff\xfe\0a", "line 1 is no text, or longer than 65536 bytes; the file is not a trace"),
        (&[b'a'; 70_000], "line 1 is no text, or longer than 65536 bytes; the file is not a trace"),
    ];
    for (bytes, message) in cases {
        let (_folder, path) = file(bytes);
        assert_eq!(read_trace(&path).unwrap_err().to_string(), format!("{}: {message}", path.display()));
    }
    let (_folder, path) = file(&gzip(CSV.as_bytes())[..30]);
    assert!(matches!(read_trace(&path), Err(TraceError::Content { source: ContentError::Read(_), .. })));
    let (folder, path) = file(b"");
    assert!(matches!(read_trace(&path), Err(TraceError::Content { source: ContentError::NoColumn { .. }, .. })));
    assert!(matches!(read_trace(&folder.path().join("absent")), Err(TraceError::Open { .. })));
    assert!(matches!(read_trace(folder.path()), Err(TraceError::Content { .. } | TraceError::Open { .. })));
}

#[test]
fn reading_stops_when_it_is_cancelled() {
    let (_folder, path) = file(CSV.as_bytes());
    assert!(matches!(read_trace_while(&path, &|| true), Err(TraceError::Cancelled)));
}
