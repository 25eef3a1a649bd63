//! Lists and maps that templates make, kept small.
//!
//! `[l, l]` is one list with one entry twice, and sixty such steps make a value that no memory holds when it is printed
//! and no time suffices to compare. So a container is counted through when it is made, however it came about, and what
//! is too large or too deep is refused: everything that walks through it later is short work.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions};

use super::dialect::STORED;

pub(super) const LIST: &str = "python_list";
pub(super) const TUPLE: &str = "python_tuple";
pub(super) const MAP: &str = "python_map";

/// Containers within containers. Conversations, which are JSON, have at most 127 levels.
pub(super) const MAX_DEPTH: usize = 200;

/// Values in a container that a template makes, beyond those of the conversation, which it may wrap.
const MAX_VALUES: usize = 4096;

/// Values that one unit of fuel pays for when they are counted. Templates that gather messages in a namespace count all
/// of them again for each.
const VALUES_PER_FUEL: usize = 64;

/// Bytes that one unit of fuel pays for. As many as the template engine gives.
pub(super) const BYTES_PER_FUEL: usize = 64;

/// Makes the ways to containers counted ones, for a conversation of `n_values` values.
pub(super) fn add_containers(environment: &mut Environment, n_values: usize) {
    let max_values = MAX_VALUES.saturating_add(n_values);
    environment.add_filter(LIST, move |state: &State, items: Rest<Value>| {
        counted(state, Value::from(items.to_vec()), max_values)
    });
    environment.add_filter(TUPLE, move |state: &State, items: Rest<Value>| {
        counted(state, Value::from(Tuple::from(items.to_vec())), max_values)
    });
    environment.add_filter(MAP, move |state: &State, entries: Rest<Value>| {
        let mut pairs = Vec::with_capacity(entries.len() / 2);
        for pair in entries.chunks_exact(2) {
            if pair[0].as_object().is_some() {
                let reason = format!("a {} cannot be a key of a map", pair[0].kind());
                return Err(Error::new(ErrorKind::NonKey, reason));
            }
            pairs.push((pair[0].clone(), pair[1].clone()));
        }
        counted(state, Value::from_pairs(pairs), max_values)
    });
    environment.add_function("dict", move |state: &State, base: Option<Value>, entries: Kwargs| {
        counted(state, functions::dict(base, entries)?, max_values)
    });
    environment.add_filter(STORED, move |state: &State, value: Value| {
        Counter { state, left: max_values, counts_text: false }.count(&value, MAX_DEPTH)?;
        Ok(value)
    });
    environment.add_function("namespace", move |state: &State, entries: Option<ValueOrKwargs>| {
        let entries = entries.map(|entries| counted(state, entries.into_value(), max_values)).transpose()?;
        functions::namespace(entries.map(ValueOrKwargs::from))
    });
    environment.add_filter("batch", |state: &mut State, list: Value, count: usize, fill: Option<Value>| {
        filters::batch(state, list, count, plain(fill)?)
    });
    environment.add_filter("slice", |state: &mut State, list: Value, count: usize, fill: Option<Value>| {
        filters::slice(state, list, count, plain(fill)?)
    });
    // Jinja has no such filters, and they too wrap lists.
    environment.remove_filter("zip");
    environment.remove_filter("chain");
}

/// What fills up the last row of a table may not be a container: it comes many times.
fn plain(fill: Option<Value>) -> Result<Option<Value>, Error> {
    match fill {
        Some(fill) if fill.as_object().is_some() => {
            Err(Error::new(ErrorKind::InvalidOperation, format!("a {} cannot fill up rows", fill.kind())))
        }
        fill => Ok(fill),
    }
}

fn counted(state: &State, value: Value, max_values: usize) -> Result<Value, Error> {
    Counter { state, left: max_values, counts_text: true }.count(&value, MAX_DEPTH)?;
    Ok(value)
}

/// Pays for all that `value` holds, and refuses it where it is deeper than `MAX_DEPTH`.
pub(super) fn ensure_finite(state: &State, value: &Value) -> Result<(), Error> {
    Counter { state, left: usize::MAX, counts_text: true }.count(value, MAX_DEPTH)
}

struct Counter<'a, 'state, 'env> {
    state: &'a State<'state, 'env>,
    /// Values that may still come.
    left: usize,
    /// Whether texts are paid for. They are when a container is made, and so were all that a namespace comes to keep.
    counts_text: bool,
}

impl Counter<'_, '_, '_> {
    fn count(&mut self, value: &Value, depth_left: usize) -> Result<(), Error> {
        if value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace")) {
            // It could come to hold itself, and then there is no end to it.
            return Err(refused("a namespace cannot be kept in or printed as a value"));
        }
        if let Some(text) = value.as_str() {
            let fuel = if self.counts_text { text.len() / BYTES_PER_FUEL } else { 0 };
            return self.state.consume_fuel(fuel as u64);
        }
        let is_map = value.kind() == ValueKind::Map;
        if !is_map && !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
            return Ok(());
        }
        let depth_left = depth_left.checked_sub(1).ok_or_else(|| refused("a list or map is nested too deep"))?;
        for item in value.try_iter()?.checked() {
            self.left = self.left.checked_sub(1).ok_or_else(|| refused("a list or map is too large"))?;
            if self.left.is_multiple_of(VALUES_PER_FUEL) {
                self.state.consume_fuel(1)?;
            }
            let item = item?;
            if is_map {
                self.count(&value.get_item(&item)?, depth_left)?;
            }
            self.count(&item, depth_left)?;
        }
        Ok(())
    }
}

fn refused(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}
