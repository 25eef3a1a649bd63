//! Templates that try to take all time or memory. They come from files of strangers.

use std::time::{Duration, Instant};

use clutor::chat::{ChatError, ChatTemplate, Conversation, Limits, SpecialTexts};

/// Fuel for the default limits lasts for a fraction of a second; machines that run tests are busy.
const TIME_LIMIT: Duration = Duration::from_secs(10);

fn render(source: &str) -> Result<String, ChatError> {
    ChatTemplate::new(source)?.render(&Conversation::default(), &SpecialTexts::default(), &Limits::default())
}

#[test]
fn hostile_templates_end_soon_and_say_why() {
    let doubled = |grow: &str, show: &str| {
        format!("{{% set ns = namespace(a='x', l=[1], d={{}}) %}}{{% for i in range(64) %}}{grow}{{% endfor %}}{show}")
    };
    let cycle = |show: &str| {
        format!(
            "{{% set a = namespace() %}}{{% set b = namespace() %}}{{% set a.x = a %}}{{% set a.y = b %}}\
             {{% set b.x = b %}}{show}"
        )
    };
    let chain = |grow: &str, show: &str| {
        format!("{{% set ns = namespace(a=[], d={{}}) %}}{{% for i in range(90000) %}}{grow}{{% endfor %}}{show}x")
    };
    let sources = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}".to_owned(),
        "{{ range(10 ** 12)|list }}".to_owned(),
        "{{ 'x' * 10 ** 12 }}".to_owned(),
        "{{ 'x' * 99999999 }}".to_owned(),
        "{{ ([0] * 99999999)|length }}".to_owned(),
        "{{ ('x' * 9999999).replace('', 'y' * 999) }}".to_owned(),
        "{{ ('x' * 99999)|replace('x', 'y' * 99999) }}".to_owned(),
        "{{ (('y' * 9999999).join('x' * 9999))|length }}".to_owned(),
        "{{ ('x' * 9999)|join('y' * 9999999) }}".to_owned(),
        "{{ '%999999999d' % 1 }}".to_owned(),
        "{{ '%999999999d'|format(1) }}".to_owned(),
        "{{ '{:>999999999}'.format(1) }}".to_owned(),
        "{{ ('a\\n' * 9999999)|indent(9999999) }}".to_owned(),
        "{{ [[[1]]]|tojson(indent=9999999999) }}".to_owned(),
        "{{ (range(9999)|list)|tojson(separators=('x' * 999999, ':')) }}".to_owned(),
        "{{ 'x'.center(999999999) }}".to_owned(),
        "{{ [1]|batch(9999999999, 'x')|list }}".to_owned(),
        "{{ [1]|slice(9999999999)|list }}".to_owned(),
        "{{ 10 ** 10 ** 10 }}".to_owned(),
        "{{ 1 << 9999999999 }}".to_owned(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}".to_owned(),
        "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(),
        doubled("{% set ns.a = ns.a ~ ns.a %}", "{{ ns.a|length }}"),
        doubled("{% set ns.a = ns.a + ns.a %}", "{{ ns.a|length }}"),
        doubled("{% set ns.a = ns.a * 9 %}", "{{ ns.a|length }}"),
        doubled("{% set ns.a = ns.a|replace('x', 'xx') %}", "{{ ns.a|length }}"),
        doubled("{% set x %}{{ ns.a }}{{ ns.a }}{% endset %}{% set ns.a = x %}", "{{ ns.a|length }}"),
        doubled("{% set ns.l = ns.l + ns.l %}", "{{ ns.l|list|length }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ ns.l }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ ns.l|tojson }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ ns.l|string }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ ns.l ~ '' }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ '%s' % (ns.l,) }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ '{}'.format(ns.l) }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ [ns.l]|join }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ ','.join([ns.l]) }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ ns.l|upper }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ ns.l|pprint }}"),
        doubled("{% set ns.l = {'a': ns.l, 'b': ns.l} %}", "{{ ns.l|tojson }}"),
        doubled("{% set ns.l = {'a': ns.l, 'b': ns.l} %}", "{{ ns.l }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ raise_exception(ns.l) }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ strftime_now(ns.l) }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}", "{{ ns.l == ns.d }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}", "{{ ns.l in [ns.d] }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}", "{{ [ns.l, ns.d]|sort }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}", "{{ [ns.l, ns.d]|unique|list }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ {ns.l: 1} }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ {ns.l: 1} }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ ns.l.nothing.x }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ ns.l.nothing() }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ ns.l + 1 }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ {}[ns.l].x }}"),
        chain("{% set ns.a = [ns.a] %}", ""),
        chain("{% set ns.a = [ns.a] %}", "{{ ns.a }}"),
        chain("{% set ns.a = [ns.a] %}", "{{ ns.a|tojson }}"),
        chain("{% set ns.a = {'a': ns.a} %}", "{{ ns.a }}"),
        chain("{% set ns.a = [ns.a] %}{% set ns.d = [ns.d] %}", "{{ ns.a == ns.d }}"),
        chain("{% set ns.a = ns.a * 1 %}", "{{ ns.a }}"),
        chain("{% set ns.a = ns.a|list %}", "{{ ns.a }}"),
        doubled("{% set ns.l = dict(a=ns.l, b=ns.l) %}", "{{ ns.l }}"),
        doubled("{% set ns.l = [ns.l]|batch(9, ns.l)|list %}", "{{ ns.l }}"),
        doubled("{% set ns.l = ns.l|zip(ns.l)|list %}", "{{ ns.l }}"),
        chain("{% set ns.a = [ns.a]|batch(1)|list %}", "{{ ns.a }}"),
        chain("{% set ns.a = ns.a|batch(1)|list %}", "{{ ns.a|string }}"),
        chain("{% set ns.a = ns.a[:] %}", "{{ ns.a }}"),
        chain("{% set ns.a = ns.a|reverse %}", "{{ ns.a }}"),
        chain("{% set ns.a = ns.a + [1] %}", "{{ ns.a|length }}"),
        chain("{% set ns.a = ns.a|map('upper') %}", "{{ ns.a|list }}"),
        chain("{% set ns.a = namespace(a=ns) %}", "{{ ns.a }}"),
        chain("{% set ns.a = ns %}", "{{ ns }}"),
        chain("{% set ns.a = ns %}", "{{ ns|tojson }}"),
        format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        format!("{{{{ 1{} }}}}", " + 1".repeat(100_000)),
        format!("{{{{ 1{} }}}}", "|nope".repeat(100_000)),
        format!("{{{{ a{} }}}}", ".b".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "[".repeat(100_000)),
        format!("{{{{ {} 1 }}}}", "1 if 1 else ".repeat(10_000)),
        format!("{{{{ {} 1 }}}}", "1 and ".repeat(100_000)),
        format!("{}{}", "{% if 1 %}".repeat(10_000), "{% endif %}".repeat(10_000)),
        format!("{}{}", "{% for i in [1] %}".repeat(10_000), "{% endfor %}".repeat(10_000)),
        format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(50_000)),
        cycle("{{ 1 < a < b }}"),
        cycle("{{ a.values()|sort }}"),
        cycle("{{ a.values()|list|unique|list }}"),
        cycle("{{ a|string }}"),
        cycle("{{ a|upper }}"),
        cycle("{{ a == b }}"),
        chain("{% set ns = namespace(a=ns) %}", "{{ ns|string }}"),
        "x".repeat(2 << 20),
    ];
    let mut wrong = Vec::new();
    for source in sources {
        let shown: String = source.chars().take(150).collect();
        let started = Instant::now();
        let answer = match render(&source) {
            // Some of it is lazy or short, and harmless.
            Ok(text) if text.len() > 1 << 20 => format!("{} bytes", text.len()),
            Ok(text) => text,
            Err(error) => error.to_string(),
        };
        let took = started.elapsed();
        println!("{shown}\n  {took:?}, {answer:.150}");
        if took > TIME_LIMIT || answer.len() > 1000 {
            wrong.push(format!("{shown}: {took:?}, {answer:.150}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn work_without_end_runs_out_of_fuel() {
    let sources = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{{ 'x' * 99999999 }}",
        "{% set ns = namespace(a='x') %}{% for i in range(64) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{{ [0] * 99999999 }}",
    ];
    for source in sources {
        let result = render(source);
        assert!(matches!(result, Err(ChatError::OutOfFuel { .. })), "{source}: {result:.200?}");
    }
}

#[test]
fn the_text_of_a_short_conversation_is_bounded() {
    let limits = Limits { output_bytes: 10, ..Limits::default() };
    let render =
        |source| ChatTemplate::new(source)?.render(&Conversation::default(), &SpecialTexts::default(), &limits);
    assert_eq!(render("1234567890").unwrap(), "1234567890");
    assert!(matches!(render("12345678901"), Err(ChatError::OutputTooLong { max: 10 })));
}
