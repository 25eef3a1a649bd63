//! The text that the trained model was not trained on.

use clutor::model::Model;

/// Its tokens.
pub fn held_out_ids(model: &Model) -> Vec<u32> {
    let text = include_str!("../data/text/held-out.txt");
    model.tokenizer().unwrap_or_else(|error| panic!("{error}")).encode(text, false)
}
