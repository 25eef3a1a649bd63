//! The hot loops behind one trait: scalar is the definition of right, SIMD paths are chosen at run time.
//!
//! Every path gives the same bits. Inside a block products are integers, exact in any order; each block adds one float
//! contribution, in block order. Float rows are summed in 16 virtual lanes and a fixed tree.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod out;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use out::OutColumns;

use crate::quant::{Activations, ColumnMut, WeightRows};
use half::f16;
use std::ops::Range;
use std::sync::OnceLock;

/// One instruction set's loops. A value of a path's type is the proof that the processor has the instructions.
pub trait Kernels: Send + Sync + std::fmt::Debug {
    /// Name for logs and for `CLUTOR_KERNELS`: `scalar`, `avx2`, `avx512-vnni`, `neon`, `neon-dot`, `neon-i8mm`.
    fn name(&self) -> &'static str;

    /// Writes `x`, `[cols]`, into `column` in the column's format.
    ///
    /// # Panics
    /// If the lengths differ.
    fn quantize(&self, x: &[f32], column: ColumnMut<'_>);

    /// Multiplies `rows` of `w` with the columns of `x` that `columns` names (repeats allowed), and writes the dot
    /// product of row `r` and column `columns[j]` to `out[j][r]`.
    ///
    /// # Panics
    /// If shapes or formats do not fit (`x.format()` must be `w.ty().activation_format()`).
    fn matmul(&self, w: &WeightRows<'_>, rows: Range<usize>, x: &Activations, columns: &[u32], out: &OutColumns<'_>);

    /// Dot product of two float vectors in 16 lanes.
    fn dot_f32(&self, a: &[f32], b: &[f32]) -> f32;

    /// Dot product of half-precision `a`, widened, and `b`, in 16 lanes.
    fn dot_f16(&self, a: &[f16], b: &[f32]) -> f32;

    /// `y[i] = fma(a, x[i], y[i])`.
    fn axpy_f32(&self, a: f32, x: &[f32], y: &mut [f32]);

    /// `y[i] = fma(a, x[i], y[i])` with `x` widened from half precision.
    fn axpy_f16(&self, a: f32, x: &[f16], y: &mut [f32]);

    /// `out = rms_norm(x) * weight`; see [`crate::math::rms_norm`].
    fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]);

    /// `gate[i] = silu(gate[i]) * up[i]`; see [`crate::math::silu`].
    fn silu_mul(&self, gate: &mut [f32], up: &[f32]);

    /// Softmax in place; see [`crate::math::softmax`].
    fn softmax(&self, x: &mut [f32]);
}

/// A path of kernels that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KernelsError {
    /// The name is not a path of this build, or the processor lacks its instructions.
    #[error("kernels `{name}` are unknown or not supported by this processor; choose one of: {available}")]
    Unavailable {
        /// Name that was asked for.
        name: String,
        /// Names that work here, separated by commas.
        available: String,
    },
}

/// Every path that this processor can run: scalar first, the fastest last.
pub fn available() -> Vec<&'static dyn Kernels> {
    paths().iter().map(|path| &**path).collect()
}

/// The fastest path that this processor can run.
pub fn best() -> &'static dyn Kernels {
    // `paths` always holds the scalar one.
    paths().last().map_or(&scalar::Scalar, |path| &**path)
}

/// The path called `name`.
///
/// # Errors
/// If there is none, or the processor cannot run it.
pub fn by_name(name: &str) -> Result<&'static dyn Kernels, KernelsError> {
    available().into_iter().find(|path| path.name() == name).ok_or_else(|| {
        let available = available().iter().map(|path| path.name()).collect::<Vec<_>>().join(", ");
        KernelsError::Unavailable { name: name.to_owned(), available }
    })
}

/// The paths in order of speed; processor features are looked up once.
fn paths() -> &'static [Box<dyn Kernels>] {
    static PATHS: OnceLock<Vec<Box<dyn Kernels>>> = OnceLock::new();
    PATHS.get_or_init(|| {
        #[allow(unused_mut)] // Some processors have no other path.
        let mut paths: Vec<Box<dyn Kernels>> = vec![Box::new(scalar::Scalar)];
        #[cfg(target_arch = "x86_64")]
        paths.extend(x86::available());
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        paths.extend(neon::available());
        paths
    })
}

/// Checks what every `matmul` promises to check.
fn assert_shapes(w: &WeightRows<'_>, rows: &Range<usize>, x: &Activations, columns: &[u32], out: &OutColumns<'_>) {
    assert_eq!(w.ty().activation_format(), Some(x.format()), "activations for {} weights", w.ty());
    assert_eq!(w.cols(), x.cols(), "columns of weights and elements of activations");
    assert!(rows.end <= w.rows() && rows.end <= out.stride(), "rows {rows:?} of {} in {}", w.rows(), out.stride());
    assert!(columns.len() <= out.n(), "{} columns for {} outputs", columns.len(), out.n());
    assert!(columns.iter().all(|column| (*column as usize) < x.n()), "columns {columns:?} of {}", x.n());
}
