//! Operators as Python has them. The engine's `+` joins lists without counting what that takes, and its `%` does not
//! format strings; so they and the making of containers become calls of filters once a template is compiled.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::containers::{BYTES_PER_FUEL, LIST, MAP, TUPLE};
use super::dialect::STORED;
use super::functions::{ensure_printable, printed};

const ADD: &str = "python_add";
const CONCAT: &str = "python_concat";
const MULTIPLY: &str = "python_multiply";
const PERCENT: &str = "python_percent";
const SLICE: &str = "python_slice";

/// The filter is looked up by name at each call, not kept in a slot, of which templates have their own.
const NO_SLOT: u8 = !0;

/// Fuel for an item of a list: what is copied is larger than a step.
const ITEMS_PER_FUEL: usize = 4;

pub(super) fn add_operators(environment: &mut Environment) {
    environment.add_filter(ADD, add);
    environment.add_filter(CONCAT, concat);
    environment.add_filter(MULTIPLY, multiply);
    environment.add_filter(SLICE, slice);
    environment.add_filter(PERCENT, percent);
}

/// Has `instructions` use the operators of this module.
pub(super) fn replace_operators(instructions: &mut Instructions) -> Result<(), Error> {
    ensure_checked_namespaces(instructions)?;
    let mut at = 0;
    while let Some(instruction) = instructions.get_mut(at) {
        match instruction {
            Instruction::Add => *instruction = Instruction::ApplyFilter(ADD, Some(2), NO_SLOT),
            Instruction::Mul => *instruction = Instruction::ApplyFilter(MULTIPLY, Some(2), NO_SLOT),
            Instruction::Slice => *instruction = Instruction::ApplyFilter(SLICE, Some(4), NO_SLOT),
            Instruction::StringConcat => *instruction = Instruction::ApplyFilter(CONCAT, Some(2), NO_SLOT),
            Instruction::BuildList(Some(n)) => *instruction = call(LIST, *n)?,
            Instruction::BuildTuple(Some(n)) => *instruction = call(TUPLE, *n)?,
            Instruction::BuildMap(pairs) => *instruction = call(MAP, pairs.saturating_mul(2))?,
            Instruction::Rem => *instruction = Instruction::ApplyFilter(PERCENT, Some(2), NO_SLOT),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Refuses code that keeps something unseen in a namespace: a value, then the namespace, then the act.
fn ensure_checked_namespaces(instructions: &Instructions) -> Result<(), Error> {
    let mut at = 0;
    while let Some(instruction) = instructions.get(at) {
        if matches!(instruction, Instruction::SetAttr(_)) {
            let value = at.checked_sub(2).and_then(|at| instructions.get(at));
            let is_seen = matches!(value, Some(Instruction::ApplyFilter(STORED, Some(1), _) | Instruction::EndCapture));
            if !is_seen {
                return Err(Error::new(ErrorKind::SyntaxError, "a namespace's entry is set in an unknown way"));
            }
        }
        at += 1;
    }
    Ok(())
}

/// The call of the filter `name` with the `n` topmost values.
fn call(name: &'static str, n: usize) -> Result<Instruction<'static>, Error> {
    let too_long = |_| Error::new(ErrorKind::SyntaxError, format!("a list or map with {n} values written out"));
    Ok(Instruction::ApplyFilter(name, Some(u16::try_from(n).map_err(too_long)?), NO_SLOT))
}

/// Python's `str(left) + str(right)`.
fn concat(state: &State, left: &Value, right: &Value) -> Result<Value, Error> {
    ensure_printable(state, left)?;
    ensure_printable(state, right)?;
    Ok(Value::from(printed(left) + &printed(right)))
}

fn add(state: &State, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        // The result is paid for once it is there; this is for the moment before.
        state.consume_fuel(((left.len() + right.len()) / BYTES_PER_FUEL) as u64)?;
        return Ok(Value::from([left, right].concat()));
    }
    if is_list(left) && is_list(right) && left.is_tuple() == right.is_tuple() {
        let mut items = items_of(state, left)?;
        items.append(&mut items_of(state, right)?);
        return Ok(list_like(left, items));
    }
    match numbers(left, right) {
        Some(Numbers::Whole(a, b)) => a.checked_add(b).map(Value::from).ok_or_else(|| unsupported("+", left, right)),
        Some(Numbers::Float(a, b)) => Ok(Value::from(a + b)),
        None => Err(unsupported("+", left, right)),
    }
}

fn multiply(state: &State, left: &Value, right: &Value) -> Result<Value, Error> {
    let (repeated, times) = if left.is_integer() { (right, left) } else { (left, right) };
    if times.is_integer() && (repeated.as_str().is_some() || is_list(repeated)) {
        let times = usize::try_from(i128::try_from(times.clone())?.max(0)).unwrap_or(usize::MAX);
        if let Some(text) = repeated.as_str() {
            state.consume_fuel((text.len().saturating_mul(times) / BYTES_PER_FUEL) as u64)?;
            return Ok(Value::from(text.repeat(times)));
        }
        let items = items_of(state, repeated)?;
        let len = items.len().saturating_mul(times);
        state.consume_fuel((len / ITEMS_PER_FUEL) as u64)?;
        return Ok(list_like(repeated, items.into_iter().cycle().take(len).collect()));
    }
    match numbers(left, right) {
        Some(Numbers::Whole(a, b)) => a.checked_mul(b).map(Value::from).ok_or_else(|| unsupported("*", left, right)),
        Some(Numbers::Float(a, b)) => Ok(Value::from(a * b)),
        None => Err(unsupported("*", left, right)),
    }
}

/// `value[start:stop:step]`, made at once: the engine's are views of views, which take ever longer to look through.
fn slice(state: &State, value: &Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let bound = |value: Value| match value.is_none() {
        true => Ok(None),
        false => i128::try_from(value).map(Some),
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "the step of a slice cannot be 0"));
    }
    if let Some(text) = value.as_str() {
        // Characters take four times the bytes, and there are two lists of them.
        state.consume_fuel((8 * text.len() / BYTES_PER_FUEL) as u64)?;
        let chars: Vec<char> = text.chars().collect();
        return Ok(Value::from(picked(&chars, start, stop, step).into_iter().collect::<String>()));
    }
    if value.is_undefined() || value.is_none() || !is_list(value) {
        let reason = format!("a value of type {} cannot be sliced", value.kind());
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    Ok(list_like(value, picked(&items_of(state, value)?, start, stop, step)))
}

/// The items that Python's slice takes, in its order.
fn picked<T: Clone>(items: &[T], start: Option<i128>, stop: Option<i128>, step: i128) -> Vec<T> {
    let len = items.len() as i128;
    // Where an index is beyond the ends: before the first, or after the last, as far as the direction allows.
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |index: i128| if index < 0 { index.saturating_add(len) } else { index }.clamp(lowest, highest);
    let (first, end) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (mut at, end) = (start.map_or(first, place), stop.map_or(end, place));
    let mut taken = Vec::new();
    while (step > 0 && at < end) || (step < 0 && at > end) {
        taken.extend(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned());
        at = at.saturating_add(step);
    }
    taken
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// The items of a list or iterator, paid for.
fn items_of(state: &State, list: &Value) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for item in list.try_iter()?.checked() {
        if items.len().is_multiple_of(ITEMS_PER_FUEL) {
            state.consume_fuel(1)?;
        }
        items.push(item?);
    }
    Ok(items)
}

/// A tuple where `model` is one, otherwise a list.
fn list_like(model: &Value, items: Vec<Value>) -> Value {
    if model.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) }
}

fn percent(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    if left.as_str().is_some() {
        return formatted(state, left, right);
    }
    match numbers(&left, &right) {
        Some(Numbers::Whole(_, 0)) => Err(Error::new(ErrorKind::InvalidOperation, "division by zero")),
        // The remainder has the divisor's sign. Only the smallest number by -1 does not fit, and leaves nothing.
        Some(Numbers::Whole(a, b)) => {
            let rest = a.checked_rem(b).unwrap_or(0);
            Ok(Value::from(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }))
        }
        Some(Numbers::Float(a, b)) => {
            let rest = a % b;
            Ok(Value::from(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }))
        }
        None => Err(unsupported("%", &left, &right)),
    }
}

/// `text % operand`: a tuple brings several values, all else is one.
fn formatted(state: &mut State, text: Value, operand: Value) -> Result<Value, Error> {
    let mut arguments = vec![text];
    if operand.is_tuple() {
        for item in operand.try_iter()?.checked() {
            arguments.push(item?);
        }
    } else {
        arguments.push(operand);
    }
    for argument in &arguments {
        ensure_printable(state, argument)?;
    }
    state.apply_filter("format", &arguments)
}

enum Numbers {
    Whole(i128, i128),
    Float(f64, f64),
}

/// Both as numbers of one kind. Truth values are 0 and 1.
fn numbers(left: &Value, right: &Value) -> Option<Numbers> {
    let is_whole = |value: &Value| value.kind() == ValueKind::Bool || value.is_integer();
    let whole = |value: &Value| match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        _ => i128::try_from(value.clone()).ok(),
    };
    let float = |value: &Value| match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    };
    if is_whole(left) && is_whole(right) {
        return Some(Numbers::Whole(whole(left)?, whole(right)?));
    }
    Some(Numbers::Float(float(left)?, float(right)?))
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    let reason = format!("{operator} does not work for {} and {}", left.kind(), right.kind());
    Error::new(ErrorKind::InvalidOperation, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_take_what_pythons_take() {
        let all = ['a', 'b', 'c', 'd'];
        let cases = [
            (None, None, 1, "abcd"),
            (None, None, -1, "dcba"),
            (Some(1), Some(3), 1, "bc"),
            (Some(-3), Some(-1), 1, "bc"),
            (Some(-9), Some(9), 2, "ac"),
            (Some(9), Some(-9), -2, "db"),
            (Some(2), None, -1, "cba"),
            (None, Some(1), -1, "dc"),
            (None, Some(-1), -1, ""),
            (Some(3), Some(1), 1, ""),
            (Some(i128::MIN), Some(i128::MAX), i128::MAX, "a"),
        ];
        for (start, stop, step, expected) in cases {
            assert_eq!(
                picked(&all, start, stop, step).into_iter().collect::<String>(),
                expected,
                "{start:?}:{stop:?}:{step}"
            );
        }
        assert!(picked::<char>(&[], None, None, -1).is_empty());
    }
}
