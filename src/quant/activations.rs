//! Activations in the form that dot products want: 8-bit blocks, or floats of the weights' precision.

use super::TensorType;

/// How a batch of activation columns is stored for a dot product.
///
/// Source: the pairing of weight and activation formats is llama.cpp's, so that logits stay within rounding of its own.
#[allow(non_camel_case_types)] // The names are the format's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationFormat {
    /// 32-element blocks with an f16-rounded scale.
    Q8_0,
    /// As `Q8_0`, with the scaled sum of each block, for weights that have a minimum.
    Q8_1,
    /// 256-element blocks with an f32 scale.
    Q8_K,
    /// Rounded to f16, kept as f32.
    F16,
    /// Rounded to bf16, kept as f32.
    BF16,
    /// As they are.
    F32,
}

impl ActivationFormat {
    /// Elements that share one scale; 1 for the float formats.
    pub fn block_len(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q8_1 => 32,
            Self::Q8_K => 256,
            Self::F16 | Self::BF16 | Self::F32 => 1,
        }
    }

    /// True where columns are 8-bit integers with scales.
    pub fn is_quantized(self) -> bool {
        self.block_len() > 1
    }
}

impl TensorType {
    /// The format that activations take to be multiplied with weights of this type, or `None` where the engine cannot
    /// multiply with the type.
    pub fn activation_format(self) -> Option<ActivationFormat> {
        use TensorType as T;
        Some(match self {
            T::F32 => ActivationFormat::F32,
            T::F16 => ActivationFormat::F16,
            T::BF16 => ActivationFormat::BF16,
            T::Q4_0 | T::Q5_0 | T::Q8_0 | T::IQ4_NL | T::MXFP4 => ActivationFormat::Q8_0,
            T::Q4_1 | T::Q5_1 => ActivationFormat::Q8_1,
            T::Q2_K | T::Q3_K | T::Q4_K | T::Q5_K | T::Q6_K | T::IQ4_XS | T::IQ3_S => ActivationFormat::Q8_K,
            _ => return None,
        })
    }
}

/// A batch of `n` activation columns of `cols` elements each, all in one format.
///
/// The fields are arrays over the whole batch, column after column, so that a kernel reads contiguous quants and
/// contiguous scales. Buffers are kept between uses; [`resize`](Self::resize) only grows them.
#[derive(Clone, Debug)]
pub struct Activations {
    format: ActivationFormat,
    cols: usize,
    n: usize,
    /// `[n, cols]` quants; empty for float formats.
    quants: Vec<i8>,
    /// `[n, cols / block_len]` scales; empty for float formats.
    scales: Vec<f32>,
    /// `[n, cols / 16]` sums of 16 quants each, for weights with an offset or a minimum.
    sums: Vec<i16>,
    /// `[n, cols / 32]` scaled sums of a block; `Q8_1` only.
    scaled_sums: Vec<f32>,
    /// `[n, cols]` values; float formats only.
    floats: Vec<f32>,
}

/// One column of [`Activations`]; unused fields are empty.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// `[cols]` quants.
    pub quants: &'a [i8],
    /// `[cols / block_len]` scales.
    pub scales: &'a [f32],
    /// `[cols / 16]` sums of 16 quants each.
    pub sums: &'a [i16],
    /// `[cols / 32]` scaled sums.
    pub scaled_sums: &'a [f32],
    /// `[cols]` values.
    pub floats: &'a [f32],
}

/// One column of [`Activations`] to be filled; unused fields are empty.
#[derive(Debug)]
pub struct ColumnMut<'a> {
    /// Format that the column must be written in.
    pub format: ActivationFormat,
    /// `[cols]` quants.
    pub quants: &'a mut [i8],
    /// `[cols / block_len]` scales.
    pub scales: &'a mut [f32],
    /// `[cols / 16]` sums of 16 quants each.
    pub sums: &'a mut [i16],
    /// `[cols / 32]` scaled sums.
    pub scaled_sums: &'a mut [f32],
    /// `[cols]` values.
    pub floats: &'a mut [f32],
}

impl Activations {
    /// An empty batch; [`resize`](Self::resize) gives it a shape.
    pub fn new() -> Self {
        Self {
            format: ActivationFormat::F32,
            cols: 0,
            n: 0,
            quants: Vec::new(),
            scales: Vec::new(),
            sums: Vec::new(),
            scaled_sums: Vec::new(),
            floats: Vec::new(),
        }
    }

    /// Makes room for `n` columns of `cols` elements in `format`; their content is unspecified until written.
    ///
    /// # Panics
    /// If `cols` is not a multiple of the format's block.
    pub fn resize(&mut self, format: ActivationFormat, cols: usize, n: usize) {
        assert_eq!(cols % format.block_len(), 0, "{cols} columns in blocks of {}", format.block_len());
        (self.format, self.cols, self.n) = (format, cols, n);
        let (quantized, scaled) = (format.is_quantized(), format == ActivationFormat::Q8_1);
        self.quants.resize(if quantized { n * cols } else { 0 }, 0);
        self.scales.resize(if quantized { n * cols / format.block_len() } else { 0 }, 0.0);
        self.sums.resize(if quantized { n * cols / 16 } else { 0 }, 0);
        self.scaled_sums.resize(if scaled { n * cols / 32 } else { 0 }, 0.0);
        self.floats.resize(if quantized { 0 } else { n * cols }, 0.0);
    }

    /// Format of every column.
    pub fn format(&self) -> ActivationFormat {
        self.format
    }

    /// Elements of a column.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of columns.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Column `i`.
    ///
    /// # Panics
    /// If `i` is not below [`n`](Self::n).
    pub fn column(&self, i: usize) -> Column<'_> {
        assert!(i < self.n, "column {i} of {}", self.n);
        Column {
            quants: part(&self.quants, i, self.n),
            scales: part(&self.scales, i, self.n),
            sums: part(&self.sums, i, self.n),
            scaled_sums: part(&self.scaled_sums, i, self.n),
            floats: part(&self.floats, i, self.n),
        }
    }

    /// All columns, to be filled, in order: threads may take one each.
    pub fn columns_mut(&mut self) -> Vec<ColumnMut<'_>> {
        let n = self.n;
        let mut quants = parts(&mut self.quants, n);
        let mut scales = parts(&mut self.scales, n);
        let mut sums = parts(&mut self.sums, n);
        let mut scaled_sums = parts(&mut self.scaled_sums, n);
        let mut floats = parts(&mut self.floats, n);
        (0..n)
            .map(|_| ColumnMut {
                format: self.format,
                quants: quants.next(),
                scales: scales.next(),
                sums: sums.next(),
                scaled_sums: scaled_sums.next(),
                floats: floats.next(),
            })
            .collect()
    }
}

impl Default for Activations {
    fn default() -> Self {
        Self::new()
    }
}

/// The `i`-th of `n` equal parts.
fn part<T>(all: &[T], i: usize, n: usize) -> &[T] {
    let len = all.len() / n;
    &all[i * len..(i + 1) * len]
}

/// Hands out `n` equal parts one after another.
struct Parts<'a, T> {
    rest: &'a mut [T],
    len: usize,
}

fn parts<T>(all: &mut [T], n: usize) -> Parts<'_, T> {
    let len = all.len().checked_div(n).unwrap_or(0);
    Parts { rest: all, len }
}

impl<'a, T> Parts<'a, T> {
    fn next(&mut self) -> &'a mut [T] {
        let (first, rest) = std::mem::take(&mut self.rest).split_at_mut(self.len);
        self.rest = rest;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_disjoint_and_keep_their_place() {
        let mut x = Activations::new();
        x.resize(ActivationFormat::Q8_1, 64, 3);
        for (i, column) in x.columns_mut().into_iter().enumerate() {
            column.quants.fill(i as i8);
            column.scales.fill(i as f32);
            column.scaled_sums.fill(-(i as f32));
            assert_eq!((column.quants.len(), column.scales.len(), column.sums.len()), (64, 2, 4));
            assert!(column.floats.is_empty());
        }
        for i in 0..3 {
            assert_eq!(x.column(i).quants, [i as i8; 64]);
            assert_eq!(x.column(i).scaled_sums, [-(i as f32); 2]);
        }
    }

    #[test]
    fn an_empty_batch_has_no_columns() {
        let mut x = Activations::new();
        x.resize(ActivationFormat::Q8_K, 256, 0);
        assert!(x.columns_mut().is_empty());
    }
}
