//! What is changed in a template's text before the template engine sees it.

/// Filter through which all that is kept in a namespace goes.
pub(super) const STORED: &str = "python_stored";

/// Gives `source` for the template engine. Line numbers and whitespace control stay.
///
/// - `{% generation %}`, by which templates mark what a model says when it is trained, becomes a `with` block: it prints
///   its content and, like the other, has variables of its own.
/// - `{% set ns.name = x %}` becomes `{% set ns.name = (x)|python_stored %}`. What escapes this is found when the
///   template is compiled (`operators.rs`).
pub(super) fn for_engine(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let len = if tag.starts_with("{#") {
            let len = tag.find("#}").map_or(tag.len(), |end| end + 2);
            out.push_str(&tag[..len]);
            len
        } else if tag.starts_with("{{") {
            let len = tag_len(tag, "}}");
            out.push_str(&tag[..len]);
            len
        } else if tag.starts_with("{%") {
            let len = tag_len(tag, "%}");
            push_block(&mut out, tag, len)
        } else {
            out.push('{');
            1
        };
        rest = &tag[len..];
    }
    out.push_str(rest);
    out
}

/// Adds the block tag with which `tag` begins, a raw block with its content. Gives the bytes taken.
fn push_block(out: &mut String, tag: &str, len: usize) -> usize {
    let block = &tag[..len];
    match word_of(block) {
        "raw" => {
            let len = len + raw_len(&tag[len..]);
            out.push_str(&tag[..len]);
            return len;
        }
        "generation" => out.push_str(&block.replacen("generation", "with", 1)),
        "endgeneration" => out.push_str(&block.replacen("endgeneration", "endwith", 1)),
        "set" => push_set(out, block),
        _ => out.push_str(block),
    }
    len
}

/// Adds a `set` tag.
fn push_set(out: &mut String, tag: &str) {
    let parts = tag.split_once('=').filter(|(target, _)| target.contains('.') && !target.contains(['|', '(']));
    let Some((target, value)) = parts else { return out.push_str(tag) };
    let end = value.strip_suffix("%}").map_or(value, |value| value.strip_suffix(['-', '+']).unwrap_or(value)).len();
    let (value, end) = value.split_at(end);
    out.push_str(&format!("{target}=({value})|{STORED} {end}"));
}

/// Bytes of the literal at the beginning of `text`, quotes included; all where it is not closed.
fn quoted_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            byte if byte == bytes[0] => return at + 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// Bytes up to and with the first `end` outside quotes; all of `tag` where there is none.
fn tag_len(tag: &str, end: &str) -> usize {
    let mut at = 2;
    while let Some(found) = tag[at..].find(|c| c == '"' || c == '\'' || end.starts_with(c)) {
        at += found;
        if tag[at..].starts_with(end) {
            return at + end.len();
        }
        at += if tag[at..].starts_with(['"', '\'']) { quoted_len(&tag[at..]) } else { 1 };
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
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{% generation %}{% endraw %}{% with %}",
            ),
            ("{% if add_generation_prompt %}é{ {", "{% if add_generation_prompt %}é{ {"),
            ("{% generation", "{% with"),
            ("{% raw %} generation {%", "{% raw %} generation {%"),
        ];
        for (source, expected) in cases {
            assert_eq!(for_engine(source), expected);
        }
    }

    #[test]
    fn what_namespaces_keep_goes_through_a_filter() {
        let cases = [
            ("{% set ns.a = 1 %}", "{% set ns.a =( 1 )|python_stored %}"),
            ("{%-set ns.a=b-%}", "{%-set ns.a=(b)|python_stored -%}"),
            ("{% set a = ns.b %}{% set ns.c %}x{% endset %}", "{% set a = ns.b %}{% set ns.c %}x{% endset %}"),
            ("{% set ns.a = b == '%}' +%}", "{% set ns.a =( b == '%}' )|python_stored +%}"),
        ];
        for (source, expected) in cases {
            assert_eq!(for_engine(source), expected);
        }
    }
}
