//! The values of metadata: thirteen types, arrays kept compactly.

use std::borrow::Cow;

/// Type of a metadata value; the discriminants are the ids of the file format.
#[allow(missing_docs)] // The names say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// The type with this id in the file format, or `None` where the id is unknown.
    pub fn from_id(id: u32) -> Option<Self> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].into_iter().find(|ty| *ty as u32 == id)
    }

    /// Name for messages, for example `u32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Bytes of one value, or `None` for strings and arrays, whose size varies.
    pub fn bytes(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }
}

/// One metadata value.
#[allow(missing_docs)] // The names say it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// The bytes as stored: the format asks for UTF-8, but published files hold other bytes too.
    String(Box<[u8]>),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// Decodes a number or bool from its little-endian bytes; `None` where `bytes` is not exactly one value of `ty`.
    ///
    /// Any byte but 0 is a true bool here; the reader refuses files that hold others than 0 and 1.
    pub(super) fn from_le_bytes(ty: ValueType, bytes: &[u8]) -> Option<Self> {
        Some(match ty {
            ValueType::U8 => Self::U8(u8::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U64 => Self::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::Bool => Self::Bool(u8::from_le_bytes(bytes.try_into().ok()?) != 0),
            ValueType::String | ValueType::Array => return None,
        })
    }

    /// Type of the value.
    pub fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Type in words, with the element type of an array, for example `array of string`.
    pub fn type_name(&self) -> Cow<'static, str> {
        match self {
            Self::Array(array) => format!("array of {}", array.element_type().name()).into(),
            other => other.ty().name().into(),
        }
    }

    /// The number, where the value is an integer of any width.
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::I8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::U64(v) => Some(v.into()),
            Self::I64(v) => Some(v.into()),
            _ => None,
        }
    }

    /// The number, where the value is a float or an integer; rounded to the nearest double.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => self.as_integer().map(|v| v as f64),
        }
    }
}

/// An array of metadata values, all of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Numbers or bools.
    Numbers(NumberArray),
    /// Strings, in one arena.
    Strings(StringArray),
    /// Arrays, whose own types may differ.
    Arrays(Box<[Array]>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(array) => array.len(),
            Self::Strings(array) => array.len(),
            Self::Arrays(arrays) => arrays.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type of the elements.
    pub fn element_type(&self) -> ValueType {
        match self {
            Self::Numbers(array) => array.ty,
            Self::Strings(_) => ValueType::String,
            Self::Arrays(_) => ValueType::Array,
        }
    }
}

/// Numbers or bools of one type, kept as the bytes of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberArray {
    ty: ValueType,
    /// Bytes of one element, at least 1.
    stride: usize,
    bytes: Box<[u8]>,
}

impl NumberArray {
    /// Takes over the little-endian `bytes` of elements of `ty`; `None` where `ty` is a string or an array.
    pub(super) fn new(ty: ValueType, bytes: Box<[u8]>) -> Option<Self> {
        Some(Self { ty, stride: ty.bytes()?, bytes })
    }

    /// Type of the elements.
    pub fn ty(&self) -> ValueType {
        self.ty
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.chunks_exact(self.stride).len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<Value> {
        self.bytes.chunks_exact(self.stride).nth(i).and_then(|chunk| Value::from_le_bytes(self.ty, chunk))
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value> {
        self.bytes.chunks_exact(self.stride).filter_map(|chunk| Value::from_le_bytes(self.ty, chunk))
    }
}

/// Byte strings in one arena: a vocabulary of 150 000 tokens is two allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    arena: Box<[u8]>,
    /// Where each string ends in `arena`; it starts where the one before ends. 32 bits do, because the reader limits
    /// a header to fewer bytes.
    ends: Box<[u32]>,
}

impl StringArray {
    /// Takes over an arena and the ends of its strings, which must ascend and lie within it.
    pub(super) fn new(arena: Box<[u8]>, ends: Box<[u32]>) -> Self {
        debug_assert!(ends.is_sorted() && ends.last().is_none_or(|end| *end as usize == arena.len()));
        Self { arena, ends }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = match i.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.arena.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let end = *end as usize;
            let string = self.arena.get(start..end).unwrap_or_default();
            start = end;
            string
        })
    }

    /// Bytes of all strings together.
    pub fn total_bytes(&self) -> usize {
        self.arena.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_ids_round_trip_and_others_are_unknown() {
        for id in 0..13 {
            assert_eq!(ValueType::from_id(id).map(|ty| ty as u32), Some(id));
        }
        assert_eq!(ValueType::from_id(13), None);
    }

    #[test]
    fn strings_are_found_by_index_and_in_order() {
        let strings = StringArray::new(Box::from(&b"abcdd"[..]), Box::from([1, 1, 5]));
        assert_eq!(strings.len(), 3);
        assert_eq!(strings.get(0), Some(&b"a"[..]));
        assert_eq!(strings.get(1), Some(&b""[..]));
        assert_eq!(strings.get(2), Some(&b"bcdd"[..]));
        assert_eq!(strings.get(3), None);
        assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"bcdd"]);
    }

    #[test]
    fn numbers_keep_their_type() {
        let numbers = NumberArray::new(ValueType::I16, Box::from([1, 0, 0xff, 0xff])).unwrap();
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [Value::I16(1), Value::I16(-1)]);
        assert_eq!(numbers.get(1), Some(Value::I16(-1)));
        assert_eq!(numbers.get(2), None);
    }
}
