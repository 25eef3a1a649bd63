//! The byte-level alphabet: one printable character for each of the 256 bytes.
//!
//! The 188 bytes that are printable in Latin-1 stand for themselves; the other 68 are, in ascending order, U+0100 and
//! on: a space is `Ġ`, a line feed `Ċ`. Source: Radford et al. 2019, the tokenizer published with GPT-2.

/// Whether `byte` is written as the Latin-1 character of the same number.
const fn is_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes written as U+0100, U+0101, and so on.
const SHIFTED: [u8; 68] = {
    let mut shifted = [0; 68];
    let (mut byte, mut n) = (0, 0);
    while byte < 256 {
        if !is_itself(byte as u8) {
            shifted[n] = byte as u8;
            n += 1;
        }
        byte += 1;
    }
    shifted
};

/// The byte that `letter` stands for, or `None` if it is not in the alphabet.
pub(super) fn byte_of(letter: char) -> Option<u8> {
    match u8::try_from(letter) {
        Ok(byte) => is_itself(byte).then_some(byte),
        Err(_) => SHIFTED.get(letter as usize - 0x100).copied(),
    }
}

/// Appends the bytes that `spelled` stands for to `bytes`.
///
/// Whatever is not in the alphabet, ill-formed UTF-8 included, stays as it is: files that hold such tokens mean them so.
pub(super) fn undo(spelled: &[u8], bytes: &mut Vec<u8>) {
    // Nearly all tokens are UTF-8 as a whole, and checking that first is faster than chunk by chunk.
    if let Ok(text) = std::str::from_utf8(spelled) {
        return undo_text(text, bytes);
    }
    for chunk in spelled.utf8_chunks() {
        undo_text(chunk.valid(), bytes);
        bytes.extend_from_slice(chunk.invalid());
    }
}

fn undo_text(spelled: &str, bytes: &mut Vec<u8>) {
    for letter in spelled.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_one_letter() {
        let mut seen: Vec<u8> = ('\0'..='\u{200}').filter_map(byte_of).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        assert_eq!((byte_of('Ġ'), byte_of('Ċ'), byte_of('ĉ')), (Some(b' '), Some(b'\n'), Some(b'\t')));
        assert_eq!((byte_of(' '), byte_of('中')), (None, None));
    }

    #[test]
    fn what_is_not_in_the_alphabet_stays() {
        let mut bytes = Vec::new();
        undo("Ġé 中".as_bytes(), &mut bytes);
        undo(b"\xff", &mut bytes);
        assert_eq!(bytes, [&[b' ', 0xe9, b' '][..], "中".as_bytes(), &[0xff]].concat());
    }
}
