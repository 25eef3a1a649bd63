//! The tag `{% generation %}`, by which templates mark what a model says when it is trained.

use std::borrow::Cow;

/// Gives `source` with each `generation` block made a `with` block, which prints its content and, like the other,
/// has variables of its own. Only the tags' words change, so whitespace control and line numbers stay.
pub(super) fn accept_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let len = if tag.starts_with("{#") {
            tag.find("#}").map_or(tag.len(), |end| end + 2)
        } else if tag.starts_with("{{") {
            tag_len(tag, "}}")
        } else if tag.starts_with("{%") {
            let len = tag_len(tag, "%}");
            match word_of(&tag[..len]) {
                "raw" => len + raw_len(&tag[len..]),
                "generation" => {
                    out.push_str(&tag[..len].replacen("generation", "with", 1));
                    rest = &tag[len..];
                    continue;
                }
                "endgeneration" => {
                    out.push_str(&tag[..len].replacen("endgeneration", "endwith", 1));
                    rest = &tag[len..];
                    continue;
                }
                _ => len,
            }
        } else {
            1
        };
        out.push_str(&tag[..len]);
        rest = &tag[len..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Bytes up to and with the first `end` outside quotes; all of `tag` where there is none.
fn tag_len(tag: &str, end: &str) -> usize {
    let bytes = tag.as_bytes();
    let (mut at, mut quote) = (2, None);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(end.as_bytes()) => return at + end.len(),
            _ => {}
        }
        at += 1;
    }
    tag.len()
}

/// The first word of a block tag.
fn word_of(tag: &str) -> &str {
    let inner = tag[2..].trim_start_matches(['-', '+']).trim_start();
    let len = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
    &inner[..len]
}

/// Bytes of a raw block after its opening tag, the closing tag included.
fn raw_len(text: &str) -> usize {
    let mut searched = 0;
    while let Some(at) = text[searched..].find("{%") {
        let start = searched + at;
        let len = tag_len(&text[start..], "%}");
        if word_of(&text[start..start + len]) == "endraw" {
            return start + len;
        }
        searched = start + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_become_blocks_that_print_their_content() {
        let cases = [
            ("a{% generation %}b{% endgeneration %}c", "a{% with %}b{% endwith %}c"),
            ("{%- generation -%}\n{%+endgeneration+%}", "{%- with -%}\n{%+endwith+%}"),
            ("{% set x = 'generation %}' %}{%generation%}", "{% set x = 'generation %}' %}{%with%}"),
            ("{# {% generation %} #}{% generation %}", "{# {% generation %} #}{% with %}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{{ 'it\\'s {% generation %}' }}", "{{ 'it\\'s {% generation %}' }}"),
            ("{% raw %}{% generation %}{% endraw %}{% generation %}", "{% raw %}{% generation %}{% endraw %}{% with %}"),
            ("{% if add_generation_prompt %}é{ {", "{% if add_generation_prompt %}é{ {"),
            ("{% generation", "{% with"),
            ("{% raw %} generation {%", "{% raw %} generation {%"),
        ];
        for (source, expected) in cases {
            assert_eq!(accept_generation_tags(source), expected);
        }
    }
}
