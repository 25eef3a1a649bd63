//! Block formats: element types and sizes, scalar decoding, activations. Uses nothing.

mod activations;
pub mod blocks;
mod decode;
mod quantize;
mod tensor_type;
mod weights;

pub use activations::{ActivationFormat, Activations, Column, ColumnMut};
pub use decode::dequantize_row;
pub use quantize::quantize;
pub use tensor_type::TensorType;
pub use weights::WeightRows;
