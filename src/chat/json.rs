//! `tojson` as the templates know it: Python's `json.dumps`, without escaping beyond ASCII unless asked for.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::containers::{BYTES_PER_FUEL, MAX_DEPTH};
use super::number::python_float;

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(state: &State, value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let option = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let is_set = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let ensure_ascii = is_set(option(0, "ensure_ascii")?);
    let indent = match option(1, "indent")? {
        None => None,
        Some(text) if text.kind() == ValueKind::String => Some(text.to_string()),
        Some(width) => {
            let width = i64::try_from(width)?;
            let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
            state.consume_fuel((width / BYTES_PER_FUEL) as u64)?;
            Some(" ".repeat(width))
        }
    };
    let (between_items, after_key) = match option(2, "separators")? {
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
    };
    let sort_keys = is_set(option(3, "sort_keys")?);
    named.assert_all_used()?;
    if positional.len() > 4 {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let mut writer =
        Writer { out: String::new(), state, ensure_ascii, indent, between_items, after_key, sort_keys, depth: 0 };
    writer.value(value)?;
    Ok(Value::from(writer.out))
}

struct Writer<'a, 'state, 'env> {
    out: String,
    state: &'a State<'state, 'env>,
    ensure_ascii: bool,
    /// One level's indentation; all in one line where there is none.
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
    depth: usize,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.push("null"),
            ValueKind::Bool => self.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.push(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value),
            ValueKind::Map => self.map(value),
            kind => Err(not_serializable(&kind.to_string())),
        }
    }

    /// Adds `text` when the fuel pays for it: values can hold one list many times and be far larger than memory.
    fn push(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(1 + (text.len() / BYTES_PER_FUEL) as u64)?;
        self.out.push_str(text);
        Ok(())
    }

    fn list(&mut self, list: &Value) -> Result<(), Error> {
        self.enter()?;
        self.out.push('[');
        let mut is_empty = true;
        for item in list.try_iter()?.checked() {
            self.start_item(is_empty)?;
            is_empty = false;
            self.value(&item?)?;
        }
        self.leave(is_empty)?;
        self.push("]")
    }

    fn map(&mut self, map: &Value) -> Result<(), Error> {
        self.enter()?;
        self.out.push('{');
        let mut is_empty = true;
        let mut keys = map.try_iter()?.checked().collect::<Result<Vec<Value>, Error>>()?;
        if self.sort_keys {
            self.state.consume_fuel(keys.len() as u64)?;
            keys.sort();
        }
        for key in keys {
            self.start_item(is_empty)?;
            is_empty = false;
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default())?,
                ValueKind::None => self.push("\"null\"")?,
                ValueKind::Bool => self.push(if key.is_true() { "\"true\"" } else { "\"false\"" })?,
                ValueKind::Number => self.push(&format!("\"{}\"", number(&key)?))?,
                kind => return Err(not_serializable(&format!("key {kind}"))),
            }
            self.out.push_str(&self.after_key);
            self.value(&map.get_item(&key)?)?;
        }
        self.leave(is_empty)?;
        self.push("}")
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let reason = format!("tojson: the value is nested deeper than {MAX_DEPTH} levels");
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
        Ok(())
    }

    fn leave(&mut self, is_empty: bool) -> Result<(), Error> {
        self.depth -= 1;
        if is_empty { Ok(()) } else { self.new_line() }
    }

    fn start_item(&mut self, is_first: bool) -> Result<(), Error> {
        if !is_first {
            let separators = self.between_items.len() + self.after_key.len();
            self.state.consume_fuel((separators / BYTES_PER_FUEL) as u64)?;
            self.out.push_str(&self.between_items);
        }
        self.new_line()
    }

    fn new_line(&mut self) -> Result<(), Error> {
        let Some(indent) = &self.indent else { return Ok(()) };
        let bytes = indent.len().saturating_mul(self.depth);
        self.state.consume_fuel((bytes / BYTES_PER_FUEL) as u64)?;
        self.out.push('\n');
        (0..self.depth).for_each(|_| self.out.push_str(indent));
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        // Escapes make at most six bytes of one.
        self.state.consume_fuel((6 * text.len() / BYTES_PER_FUEL) as u64)?;
        self.push("\"")?;
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c >= '\u{7f}') => {
                    // DEL is ASCII and stays, as in Python.
                    if c == '\u{7f}' {
                        self.out.push(c);
                        continue;
                    }
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Ok(())
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let x = f64::try_from(value.clone())?;
    Ok(match python_float(x).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        digits => digits.to_owned(),
    })
}

fn not_serializable(what: &str) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("tojson: {what} cannot be written as JSON"))
}
