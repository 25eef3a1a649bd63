//! Block formats: element types and sizes, scalar decoding, quantized activations. Uses nothing.

mod tensor_type;

pub use tensor_type::TensorType;
