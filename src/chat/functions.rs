//! What templates may call beyond Jinja's own: what transformers gives them, and methods of Python's values.

use std::fmt::{self, Write};

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::containers::{BYTES_PER_FUEL, add_containers, ensure_finite};
use super::error::RaisedByTemplate;
use super::json::tojson;
use super::number::python_float;
use super::operators::add_operators;

/// Nested macro calls; deeper ones are an error.
const RECURSION_LIMIT: usize = 100;

/// Width and precision in a format string have at most as many digits: more would be megabytes of spaces.
const MAX_FORMAT_DIGITS: usize = 4;

/// An environment set up as transformers sets up Python's, with no loader: a template can reach no other. The
/// conversation that it is for has `n_values` values.
pub(super) fn environment(n_values: usize) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(write_value);
    environment.add_filter("tojson", tojson);
    add_containers(&mut environment, n_values);
    add_operators(&mut environment);
    environment.add_function("raise_exception", raise_exception);
    environment
}

fn raise_exception(state: &State, message: &Value) -> Result<Value, Error> {
    ensure_printable(state, message)?;
    let raised = RaisedByTemplate(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(raised))
}

/// Prints a value.
fn write_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.write_str(text).map_err(Error::from),
        None => {
            ensure_printable(state, value)?;
            out.write_str(&printed(value)).map_err(Error::from)
        }
    }
}

/// The text of a value; floats as Python writes them, which differs from the engine's way from 1e16 on.
pub(super) fn printed(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(x) if value.kind() == ValueKind::Number && !value.is_integer() => python_float(x),
        _ => value.to_string(),
    }
}

/// Python's methods. Those that make much of little are held to the fuel first.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), name) {
        (Some(text), "format") => {
            ensure_modest_format(text)?;
            for argument in arguments {
                ensure_printable(state, argument)?;
            }
        }
        (Some(_), "join") => {
            for argument in arguments {
                ensure_printable(state, argument)?;
            }
        }
        _ => {}
    }
    unknown_method_callback(state, value, name, arguments)
}

/// Refuses format strings that ask for large widths, or for a width that a value gives.
fn ensure_modest_format(text: &str) -> Result<(), Error> {
    let refused = |reason: &str| Err(Error::new(ErrorKind::InvalidOperation, format!("str.format: {reason}")));
    if text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > MAX_FORMAT_DIGITS) {
        return refused("a number in the format has more than four digits");
    }
    // `{{` is a brace; any other within a field is a nested field.
    let (mut is_field, mut chars) = (false, text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '{' if is_field => return refused("fields within fields are not supported"),
            '{' if chars.next_if_eq(&'{').is_none() => is_field = true,
            '}' => is_field = false,
            _ => {}
        }
    }
    Ok(())
}

/// Pays for the text of `value`. Lists can hold one list many times, so that their text is far larger than they are.
pub(super) fn ensure_printable(state: &State, value: &Value) -> Result<(), Error> {
    ensure_finite(state, value)?;
    let mut meter = Meter { state, exhausted: None };
    // Writing fails where the meter does.
    let written = write!(meter, "{value}");
    match (meter.exhausted, written) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(fmt::Error)) => Err(Error::from(ErrorKind::WriteFailure)),
    }
}

/// Takes text for its length alone.
struct Meter<'a, 'state, 'env> {
    state: &'a State<'state, 'env>,
    exhausted: Option<Error>,
}

impl Write for Meter<'_, '_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.state.consume_fuel(1 + (text.len() / BYTES_PER_FUEL) as u64).map_err(|error| {
            self.exhausted = Some(error);
            fmt::Error
        })
    }
}
