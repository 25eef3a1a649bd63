//! Text from bytes that arrive in parts.

/// Turns the bytes of tokens into text as they come, without ever splitting a character.
///
/// An unfinished character is held back until its other bytes arrive. Bytes that cannot become a character any more
/// turn into U+FFFD as soon as that is certain, one for each maximal ill-formed piece, as
/// [`String::from_utf8_lossy`] does: all texts given, put together, are what it gives for all bytes put together.
///
/// ```
/// # use clutor::tokenizer::StreamDecoder;
/// let mut decoder = StreamDecoder::default();
/// assert_eq!(decoder.push(b"na\xc3"), "na");
/// assert_eq!(decoder.push(b"\xafve\xf0\x9f"), "ïve");
/// assert_eq!(decoder.finish(), "\u{fffd}");
/// ```
#[derive(Debug, Default, Clone)]
pub struct StreamDecoder {
    /// The beginning of a character, at most 3 bytes between calls.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// Takes the bytes of the next token and gives the text that is certain now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.pending.len());
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.extend(valid.utf8_chunks().map(|chunk| chunk.valid()));
                    match error.error_len() {
                        Some(_) if is_half_a_surrogate(after) => {
                            rest = after;
                            break;
                        }
                        Some(ill_formed) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = &after[ill_formed..];
                        }
                        None => {
                            rest = after;
                            break;
                        }
                    }
                }
            }
        }
        let decided = self.pending.len() - rest.len();
        self.pending.drain(..decided);
        text
    }

    /// Ends the text: gives U+FFFD if a character is unfinished, else nothing. The decoder is then as new.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// Whether `bytes` are the first two of the three with which a UTF-16 surrogate is written, against the rules of UTF-8.
///
/// They cannot become a character, but are held back until the third is there, as Python's incremental decoder does,
/// by which the text of the reference tokenizers is streamed.
fn is_half_a_surrogate(bytes: &[u8]) -> bool {
    matches!(bytes, [0xed, 0xa0..=0xbf])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(parts: &[&[u8]]) -> Vec<String> {
        let mut decoder = StreamDecoder::default();
        let mut texts: Vec<String> = parts.iter().map(|part| decoder.push(part)).collect();
        texts.push(decoder.finish());
        texts
    }

    #[test]
    fn a_character_appears_with_its_last_byte() {
        assert_eq!(stream(&[b"\xf0", b"\x9f\x98", b"\x80!"]), ["", "", "😀!", ""]);
    }

    #[test]
    fn bytes_that_cannot_become_a_character_are_replaced_at_once() {
        // F0 must be followed by 90 or more: 80 shows that F0 is lost, and is lost itself.
        assert_eq!(stream(&[b"\xf0", b"\x80"]), ["", "\u{fffd}\u{fffd}", ""]);
        assert_eq!(stream(&[b"\xe2\x82", b"(", b"\xff"]), ["", "\u{fffd}(", "\u{fffd}", ""]);
    }

    #[test]
    fn a_surrogate_is_replaced_when_it_is_complete() {
        assert_eq!(stream(&[b"\xed", b"\xa0", b"\x80"]), ["", "", "\u{fffd}\u{fffd}\u{fffd}", ""]);
        assert_eq!(stream(&[b"\xed\xa0"]), ["", "\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn the_end_replaces_an_unfinished_character_once() {
        assert_eq!(stream(&[b"a\xf0\x9f\x98"]), ["a", "\u{fffd}"]);
    }

    proptest! {
        #[test]
        fn all_parts_together_are_the_lossy_text_of_all_bytes(
            parts in prop::collection::vec(prop::collection::vec(prop::sample::select(
                b"a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5\xff".to_vec()), 0..4), 0..12)
        ) {
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let all = parts.concat();
            prop_assert_eq!(stream(&slices).concat(), String::from_utf8_lossy(&all));
        }
    }
}
