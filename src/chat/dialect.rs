//! What Python's Jinja takes and the template engine does not, written in words that it knows.

use std::borrow::Cow;

/// Name of the filter that stands for Python's `%` after a string.
pub(super) const PERCENT_FILTER: &str = "python_percent";

/// Gives `source` for the template engine. Line numbers stay.
///
/// - `{% generation %}`, by which templates mark what a model says when it is trained, becomes a `with` block: it prints
///   its content and, like the other, has variables of its own.
/// - `'…' % x` becomes a filter: the engine has no such operator for strings. Only after a literal, where it is
///   certain that a string is meant.
pub(super) fn accept_python(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") && !source.contains('%') {
        return Cow::Borrowed(source);
    }
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
            push_expression(&mut out, &tag[..len]);
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
    Cow::Owned(out)
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
        _ => push_expression(out, block),
    }
    len
}

/// Adds a tag, its `'…' % x` as filters.
fn push_expression(out: &mut String, tag: &str) {
    let mut rest = tag;
    while let Some(at) = rest.find(['"', '\'']) {
        let literal_end = at + quoted_len(&rest[at..]);
        out.push_str(&rest[..literal_end]);
        rest = &rest[literal_end..];
        let operator = rest.trim_start();
        let Some(operand) = operator.strip_prefix('%').filter(|operand| !operand.starts_with('}')) else { continue };
        let spaces = operand.len() - operand.trim_start().len();
        let (operand, after) = operand.split_at(spaces + operand_len(&operand[spaces..]));
        out.push('|');
        out.push_str(PERCENT_FILTER);
        out.push('(');
        push_expression(out, operand);
        out.push(')');
        rest = after;
    }
    out.push_str(rest);
}

/// Bytes of the operand of `%` at the beginning of `text`: a name, number, literal or group, with all that belongs to
/// it. Filters bind closer than operators.
fn operand_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' | b'\'' => at += quoted_len(&text[at..]) - 1,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => break,
            b')' | b']' | b'}' => depth -= 1,
            b'.' | b'|' => {}
            b if b.is_ascii_whitespace() && depth == 0 => {
                // Only what goes on after a space belongs to it; another word does not.
                let next = text[at..].trim_start();
                let goes_on = next.starts_with(['.', '|', '(', '[']) || text[..at].trim_end().ends_with(['.', '|']);
                if !goes_on {
                    break;
                }
            }
            b if depth == 0 && !(b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80) => break,
            _ => {}
        }
        at += 1;
    }
    at
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
            assert_eq!(accept_python(source), expected);
        }
    }

    #[test]
    fn percent_after_a_string_becomes_a_filter() {
        let cases = [
            ("{{ '%s' % x }}", "{{ '%s'|python_percent( x) }}"),
            ("{{'%s'%x}}", "{{'%s'|python_percent(x)}}"),
            ("{{ '%s-%d' % ('x', 3) ~ y }}", "{{ '%s-%d'|python_percent( ('x', 3)) ~ y }}"),
            ("{{ 'a' % x.y[0] | upper + 1 }}", "{{ 'a'|python_percent( x.y[0] | upper) + 1 }}"),
            ("{% set a = '%s' % b %}", "{% set a = '%s'|python_percent( b) %}"),
            ("{% set a = 'x' %}", "{% set a = 'x' %}"),
            ("{% set a = 'x'%}", "{% set a = 'x'%}"),
            ("{{ 'a' % ('b' % c) }}", "{{ 'a'|python_percent( ('b'|python_percent( c))) }}"),
            ("{{ 7 % 3 }}", "{{ 7 % 3 }}"),
            ("{{ '%' if a else b }} 'x' % y", "{{ '%' if a else b }} 'x' % y"),
            ("{{ 'é' % 'é\\'' }}", "{{ 'é'|python_percent( 'é\\'') }}"),
            ("{{ 'a' %", "{{ 'a'|python_percent()"),
        ];
        for (source, expected) in cases {
            assert_eq!(accept_python(source), expected);
        }
    }
}
