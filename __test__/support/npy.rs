//! Reads the `.npy` files that recorded answers are kept in (numpy format 1.0, little-endian, C order).

use std::path::Path;

/// Reads an array of 32-bit floats.
#[allow(dead_code)] // Not every test that includes this file needs every type.
pub fn read_f32(path: &Path) -> Vec<f32> {
    read(path, "<f4").as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Reads an array of 32-bit integers.
#[allow(dead_code)] // As above.
pub fn read_i32(path: &Path) -> Vec<i32> {
    read(path, "<i4").as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect()
}

fn read(path: &Path, ty: &str) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{}", path.display());
    let header_end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8_lossy(&bytes[10..header_end]);
    assert!(header.contains(&format!("'descr': '{ty}'")), "{}: {header}", path.display());
    assert!(header.contains("'fortran_order': False"), "{}: {header}", path.display());
    bytes[header_end..].to_vec()
}
