//! The character classes that the patterns name, for all of Unicode.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};

/// `\p{L}`
pub(super) const LETTER: u8 = 1 << 0;
/// `\p{N}`
pub(super) const NUMBER: u8 = 1 << 1;
/// `\s`
pub(super) const SPACE: u8 = 1 << 2;
/// `[^\s\p{L}\p{N}]`: marks, punctuation, symbols, controls, unassigned.
pub(super) const OTHER: u8 = 1 << 3;
/// `\p{M}`
pub(super) const MARK: u8 = 1 << 4;
/// `[\p{P}\p{S}]`
pub(super) const SIGN: u8 = 1 << 5;
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`: can stand at the beginning of a word in camel case.
pub(super) const HEAD: u8 = 1 << 6;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`: can stand in the rest of such a word.
pub(super) const TAIL: u8 = 1 << 7;
/// Characters per block of the table.
const BLOCK: usize = 256;

/// A set of classes for each character: a table of blocks, of which equal ones are kept once.
pub(super) struct Classes {
    /// By `character / BLOCK`: the block's place in `blocks`.
    places: Vec<u16>,
    /// Block 0 comes first, so ASCII is found without `places`.
    blocks: Vec<[u8; BLOCK]>,
}

impl Classes {
    /// The table, made at the first call.
    pub fn unicode() -> &'static Self {
        static TABLE: OnceLock<Classes> = OnceLock::new();
        TABLE.get_or_init(|| Self::compress(&classes_by_code_point()))
    }

    /// The classes of an ASCII character.
    pub fn of_ascii(&self, byte: u8) -> u8 {
        self.blocks[0][usize::from(byte)]
    }

    /// The classes of any character.
    pub fn of(&self, character: char) -> u8 {
        let code = character as usize;
        self.blocks[usize::from(self.places[code / BLOCK])][code % BLOCK]
    }

    fn compress(classes: &[u8]) -> Self {
        let mut table = Self { places: Vec::new(), blocks: Vec::new() };
        for block in classes.as_chunks::<BLOCK>().0 {
            // Some 100 blocks differ. Neighbours are the likeliest to be equal.
            let place = table.blocks.iter().rposition(|known| known == block).unwrap_or_else(|| {
                table.blocks.push(*block);
                table.blocks.len() - 1
            });
            table.places.push(place as u16);
        }
        table
    }
}

/// The classes of all code points.
fn classes_by_code_point() -> Vec<u8> {
    let mut classes = vec![0; char::MAX as usize + 1];
    for (category, class) in [
        (r"\p{Lu}", LETTER | HEAD),
        (r"\p{Lt}", LETTER | HEAD),
        (r"\p{Ll}", LETTER | TAIL),
        (r"\p{Lm}", LETTER | HEAD | TAIL),
        (r"\p{Lo}", LETTER | HEAD | TAIL),
        (r"\p{M}", MARK | HEAD | TAIL),
        (r"\p{N}", NUMBER),
        (r"\p{P}", SIGN),
        (r"\p{S}", SIGN),
    ] {
        let parsed = regex_syntax::parse(category).expect("a Unicode category");
        let HirKind::Class(Class::Unicode(set)) = parsed.kind() else { unreachable!("a category is a class") };
        for range in set.ranges() {
            classes[range.start() as usize..=range.end() as usize].fill(class);
        }
    }
    for character in ('\0'..=char::MAX).filter(|character| character.is_whitespace()) {
        classes[character as usize] |= SPACE;
    }
    for class in &mut classes {
        if *class & (LETTER | NUMBER | SPACE) == 0 {
            *class |= OTHER;
        }
    }
    classes
}
