//! The key-value part of a file, with getters whose errors name key, type and file.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::GgufError;
use super::error::shown;
use super::value::{Array, NumberArray, StringArray, Value};

/// Metadata of a file, or of the first shard of a set: keys in the order of the file, each once.
///
/// The `get_*` functions give `None` where the key is absent, and an error where its value has another type or does
/// not fit; the `require_*` functions make an absent key an error as well. Integers are taken from any integer type.
#[derive(Clone, Debug)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(String, Value)>,
    /// Indices into `entries`, in the order of the keys.
    by_key: Vec<u32>,
}

impl Metadata {
    /// Takes over the entries of the file at `path`.
    pub(super) fn new(path: &Path, entries: Vec<(String, Value)>) -> Result<Self, GgufError> {
        let by_key = sorted_by_name(&entries, |entry| &entry.0)
            .map_err(|key| GgufError::DuplicateKey { path: path.into(), key: shown(key.as_bytes()) })?;
        Ok(Self { path: path.into(), entries, by_key })
    }

    /// Keys and values in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key`, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        find_by_name(&self.entries, &self.by_key, |entry| &entry.0, key).map(|entry| &entry.1)
    }

    /// The string under `key`, with U+FFFD in place of bytes that are not UTF-8.
    pub fn get_str(&self, key: &str) -> Result<Option<Cow<'_, str>>, GgufError> {
        Ok(self.get_bytes(key)?.map(String::from_utf8_lossy))
    }

    /// The string under `key`, as the bytes of the file.
    pub fn get_bytes(&self, key: &str) -> Result<Option<&[u8]>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(bytes)) => Ok(Some(bytes)),
            Some(other) => Err(self.wrong_type(key, other, "string")),
        }
    }

    /// The integer under `key`, from any integer type whose value fits.
    pub fn get_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.integer(key, "u32")
    }

    /// The integer under `key`, from any integer type whose value fits.
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.integer(key, "u64")
    }

    /// The integer under `key`, from any integer type whose value fits.
    pub fn get_i64(&self, key: &str) -> Result<Option<i64>, GgufError> {
        self.integer(key, "i64")
    }

    /// The count or width under `key`, from any integer type whose value fits.
    pub fn get_usize(&self, key: &str) -> Result<Option<usize>, GgufError> {
        self.integer(key, "usize")
    }

    /// The float under `key`, from a float or an integer of any width; rounded to the nearest `f32`, which may be
    /// infinite or NaN.
    pub fn get_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_float() {
                Some(float) => Ok(Some(float as f32)),
                None => Err(self.wrong_type(key, value, "f32")),
            },
        }
    }

    /// The bool under `key`.
    pub fn get_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(bool)) => Ok(Some(*bool)),
            Some(other) => Err(self.wrong_type(key, other, "bool")),
        }
    }

    /// The array under `key`, of any element type.
    pub fn get_array(&self, key: &str) -> Result<Option<&Array>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(other) => Err(self.wrong_type(key, other, "array")),
        }
    }

    /// The array of strings under `key`.
    pub fn get_strings(&self, key: &str) -> Result<Option<&StringArray>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::Strings(strings))) => Ok(Some(strings)),
            Some(other) => Err(self.wrong_type(key, other, "array of string")),
        }
    }

    /// The array of integers under `key`, from any integer type whose values fit.
    pub fn get_u32s(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.integers(key, "u32", "array of u32")
    }

    /// The array of integers under `key`, from any integer type whose values fit.
    pub fn get_i32s(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.integers(key, "i32", "array of i32")
    }

    /// The array of floats under `key`, from any number type; rounded to the nearest `f32`.
    pub fn get_f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let Some((value, numbers)) = self.numbers(key, "array of f32")? else { return Ok(None) };
        let floats = numbers.iter().map(|number| number.as_float().map(|float| float as f32));
        floats.collect::<Option<_>>().map(Some).ok_or_else(|| self.wrong_type(key, value, "array of f32"))
    }

    /// The array of bools under `key`.
    pub fn get_bools(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        let Some((value, numbers)) = self.numbers(key, "array of bool")? else { return Ok(None) };
        let bools = numbers.iter().map(|number| if let Value::Bool(bool) = number { Some(bool) } else { None });
        bools.collect::<Option<_>>().map(Some).ok_or_else(|| self.wrong_type(key, value, "array of bool"))
    }

    /// Like [`get_str`](Self::get_str), but an absent key is an error.
    pub fn require_str(&self, key: &str) -> Result<Cow<'_, str>, GgufError> {
        self.present(key, self.get_str(key)?)
    }

    /// Like [`get_u32`](Self::get_u32), but an absent key is an error.
    pub fn require_u32(&self, key: &str) -> Result<u32, GgufError> {
        self.present(key, self.get_u32(key)?)
    }

    /// Like [`get_u64`](Self::get_u64), but an absent key is an error.
    pub fn require_u64(&self, key: &str) -> Result<u64, GgufError> {
        self.present(key, self.get_u64(key)?)
    }

    /// Like [`get_usize`](Self::get_usize), but an absent key is an error.
    pub fn require_usize(&self, key: &str) -> Result<usize, GgufError> {
        self.present(key, self.get_usize(key)?)
    }

    /// Like [`get_f32`](Self::get_f32), but an absent key is an error.
    pub fn require_f32(&self, key: &str) -> Result<f32, GgufError> {
        self.present(key, self.get_f32(key)?)
    }

    /// Like [`get_bool`](Self::get_bool), but an absent key is an error.
    pub fn require_bool(&self, key: &str) -> Result<bool, GgufError> {
        self.present(key, self.get_bool(key)?)
    }

    /// Like [`get_array`](Self::get_array), but an absent key is an error.
    pub fn require_array(&self, key: &str) -> Result<&Array, GgufError> {
        self.present(key, self.get_array(key)?)
    }

    /// Like [`get_strings`](Self::get_strings), but an absent key is an error.
    pub fn require_strings(&self, key: &str) -> Result<&StringArray, GgufError> {
        self.present(key, self.get_strings(key)?)
    }

    fn present<T>(&self, key: &str, value: Option<T>) -> Result<T, GgufError> {
        value.ok_or_else(|| GgufError::MissingKey { path: self.path.clone(), key: shown(key.as_bytes()) })
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, expected: &'static str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let integer = value.as_integer().ok_or_else(|| self.wrong_type(key, value, expected))?;
        T::try_from(integer).map(Some).map_err(|_| self.out_of_range(key, integer, expected))
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        element: &'static str,
        expected: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let Some((value, numbers)) = self.numbers(key, expected)? else { return Ok(None) };
        let integers = numbers.iter().map(|number| {
            let integer = number.as_integer().ok_or_else(|| self.wrong_type(key, value, expected))?;
            T::try_from(integer).map_err(|_| self.out_of_range(key, integer, element))
        });
        integers.collect::<Result<_, _>>().map(Some)
    }

    fn numbers(&self, key: &str, expected: &'static str) -> Result<Option<(&Value, &NumberArray)>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(value @ Value::Array(Array::Numbers(numbers))) => Ok(Some((value, numbers))),
            Some(other) => Err(self.wrong_type(key, other, expected)),
        }
    }

    fn wrong_type(&self, key: &str, value: &Value, expected: &'static str) -> GgufError {
        let found = value.type_name().into_owned();
        GgufError::WrongType { path: self.path.clone(), key: shown(key.as_bytes()), found, expected }
    }

    fn out_of_range(&self, key: &str, found: i128, expected: &'static str) -> GgufError {
        let found = found.to_string();
        GgufError::OutOfRange { path: self.path.clone(), key: shown(key.as_bytes()), found, expected }
    }
}

/// Indices of `items` in the order of their names, or the first name that occurs twice.
///
/// A sorted index takes four bytes an item and no copies of the names, and a crafted file cannot make it slow.
pub(super) fn sorted_by_name<T>(items: &[T], name: impl Fn(&T) -> &String) -> Result<Vec<u32>, &str> {
    let name_of = |i: &u32| items.get(*i as usize).map_or("", |item| name(item));
    // Fewer items than bytes of a header, whose limit is below 2^32.
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    order.sort_unstable_by(|a, b| name_of(a).cmp(name_of(b)));
    for pair in order.windows(2) {
        if let [a, b] = pair
            && name_of(a) == name_of(b)
        {
            return Err(name_of(a));
        }
    }
    Ok(order)
}

/// The item called `wanted`, by the index that [`sorted_by_name`] made.
pub(super) fn find_by_name<'a, T>(
    items: &'a [T],
    order: &[u32],
    name: impl Fn(&T) -> &String,
    wanted: &str,
) -> Option<&'a T> {
    let found = order.binary_search_by(|i| items.get(*i as usize).map_or("", |item| name(item)).cmp(wanted)).ok()?;
    items.get(*order.get(found)? as usize)
}
