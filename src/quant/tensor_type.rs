//! The element types a GGUF tensor can have: names, ids and block sizes.

/// Element type of a GGUF tensor.
///
/// Values of a block format are stored in blocks of [`block_len`](Self::block_len) elements that share scales; a row
/// is a whole number of blocks. The discriminants are the ids of the file format.
///
/// Source: the GGUF specification (`ggml_type`), block layouts as in ggml.
#[allow(missing_docs, non_camel_case_types)] // The names are the format's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum TensorType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
}

/// Every type with its name, elements per block and bytes per block.
const TABLE: [(TensorType, &str, usize, usize); 32] = {
    use TensorType::*;
    [
        (F32, "F32", 1, 4),
        (F16, "F16", 1, 2),
        (Q4_0, "Q4_0", 32, 18),
        (Q4_1, "Q4_1", 32, 20),
        (Q5_0, "Q5_0", 32, 22),
        (Q5_1, "Q5_1", 32, 24),
        (Q8_0, "Q8_0", 32, 34),
        (Q8_1, "Q8_1", 32, 36),
        (Q2_K, "Q2_K", 256, 84),
        (Q3_K, "Q3_K", 256, 110),
        (Q4_K, "Q4_K", 256, 144),
        (Q5_K, "Q5_K", 256, 176),
        (Q6_K, "Q6_K", 256, 210),
        (Q8_K, "Q8_K", 256, 292),
        (IQ2_XXS, "IQ2_XXS", 256, 66),
        (IQ2_XS, "IQ2_XS", 256, 74),
        (IQ3_XXS, "IQ3_XXS", 256, 98),
        (IQ1_S, "IQ1_S", 256, 50),
        (IQ4_NL, "IQ4_NL", 32, 18),
        (IQ3_S, "IQ3_S", 256, 110),
        (IQ2_S, "IQ2_S", 256, 82),
        (IQ4_XS, "IQ4_XS", 256, 136),
        (I8, "I8", 1, 1),
        (I16, "I16", 1, 2),
        (I32, "I32", 1, 4),
        (I64, "I64", 1, 8),
        (F64, "F64", 1, 8),
        (IQ1_M, "IQ1_M", 256, 56),
        (BF16, "BF16", 1, 2),
        (TQ1_0, "TQ1_0", 256, 54),
        (TQ2_0, "TQ2_0", 256, 66),
        (MXFP4, "MXFP4", 32, 17),
    ]
};

impl TensorType {
    /// The type with this id in the file format, or `None` where the id is unknown.
    pub fn from_id(id: u32) -> Option<Self> {
        TABLE.iter().map(|row| row.0).find(|ty| *ty as u32 == id)
    }

    /// Name as the format writes it, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements in one block; 1 for plain numbers.
    pub fn block_len(self) -> usize {
        self.row().2
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Bytes of one row of `cols` elements, or `None` where `cols` is not a whole number of blocks or the size
    /// overflows.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }

    fn row(self) -> &'static (TensorType, &'static str, usize, usize) {
        // The table lists every variant; `every_variant_has_a_row` holds that.
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[0])
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_a_row() {
        for id in 0..64 {
            if let Some(ty) = TensorType::from_id(id) {
                assert_eq!(ty as u32, id);
                assert_eq!(ty.row().0, ty);
            }
        }
        assert_eq!(TensorType::MXFP4.name(), "MXFP4");
    }

    #[test]
    fn a_row_that_is_not_whole_blocks_has_no_size() {
        assert_eq!(TensorType::Q4_K.row_bytes(512), Some(288));
        assert_eq!(TensorType::Q4_K.row_bytes(250), None);
        assert_eq!(TensorType::Q8_0.row_bytes(usize::MAX - 31), None);
    }
}
