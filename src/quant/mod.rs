//! Block formats: element types and sizes, scalar decoding, activations. Uses nothing.

mod activations;
mod tensor_type;
mod weights;

pub use activations::{ActivationFormat, Activations, Column, ColumnMut};
pub use tensor_type::TensorType;
pub use weights::WeightRows;
