//! What can go wrong with a template.

/// Why a conversation could not be rendered.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ChatError {
    #[error("the chat template has {len} bytes, and at most {max} are read; pass a template of your own")]
    SourceTooLong { len: usize, max: usize },
    #[error("the chat template is not valid: {reason}; pass a template of your own")]
    Syntax { reason: String, source: Box<minijinja::Error> },
    /// The template called `raise_exception`: the conversation is not one that it takes.
    #[error("the chat template refuses this conversation: {message}")]
    Raised { message: String },
    #[error("the chat template failed: {reason}")]
    Render { reason: String, source: Box<minijinja::Error> },
    #[error("the chat template was stopped: it does more work, or makes more text, than {fuel} units of fuel allow")]
    OutOfFuel { fuel: u64 },
    #[error("the chat template was stopped: its text is longer than {max} bytes")]
    OutputTooLong { max: usize },
    #[error("cannot start a thread for the chat template: {source}; the limit of threads is reached")]
    Thread { source: std::io::Error },
    #[error("the chat template failed inside; please report it with the template")]
    Panicked,
}

/// Carries the words of `raise_exception` through the template engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RaisedByTemplate(pub(super) String);

impl ChatError {
    /// Sorts an error of the template engine that came up while rendering with so much `fuel`.
    pub(super) fn from_rendering(error: minijinja::Error, fuel: u64) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(found) = cause {
            if let Some(RaisedByTemplate(message)) = found.downcast_ref() {
                return Self::Raised { message: message.clone() };
            }
            let kind = found.downcast_ref().map(minijinja::Error::kind);
            if kind == Some(minijinja::ErrorKind::OutOfFuel) {
                return Self::OutOfFuel { fuel };
            }
            cause = found.source();
        }
        Self::Render { reason: described(&error), source: Box::new(error) }
    }

    pub(super) fn from_parsing(error: minijinja::Error) -> Self {
        Self::Syntax { reason: described(&error), source: Box::new(error) }
    }
}

/// What happened and in which line, without the name that all templates have here.
fn described(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}
