//! Paths for x86-64 processors.
#![allow(unsafe_code)] // Vector loads take raw pointers, and the features are proven at run time.

mod avx2;
mod avx512;
mod unpack;

use super::Kernels;

/// The paths that this processor can run, in order of speed.
pub(super) fn available() -> Vec<Box<dyn Kernels>> {
    let mut paths: Vec<Box<dyn Kernels>> = Vec::new();
    if let Some(path) = avx2::Avx2::detect() {
        paths.push(Box::new(path));
    }
    if let Some(path) = avx512::Avx512Vnni::detect() {
        paths.push(Box::new(path));
    }
    paths
}
