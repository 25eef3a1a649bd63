//! What templates may call beyond Jinja's own: what transformers gives them, and methods of Python's values.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::error::RaisedByTemplate;
use super::json::tojson;

/// Nested macro calls; deeper ones are an error.
const RECURSION_LIMIT: usize = 100;

/// An environment set up as transformers sets up Python's, with no loader: a template can reach no other.
pub(super) fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", raise_exception);
    Ok(environment)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let raised = RaisedByTemplate(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(raised))
}
