use super::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn render_with(source: &str, conversation: &Conversation) -> Result<String, ChatError> {
    ChatTemplate::new(source)?.render(conversation, &SpecialTexts::default(), &Limits::default())
}

fn render(source: &str) -> Result<String, ChatError> {
    render_with(source, &Conversation::default())
}

fn conversation(messages: &Value) -> Conversation {
    Conversation { messages: messages.as_array().unwrap().clone(), ..Conversation::default() }
}

#[test]
fn hostile_templates_end_with_an_error_soon() {
    let doubled = |grow: &str, show: &str| {
        format!("{{% set ns = namespace(a='x', l=[1], d={{}}) %}}{{% for i in range(64) %}}{grow}{{% endfor %}}{show}")
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
        doubled("{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}", "{{ ns.l == ns.d }}{{ 1|nope }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}", "{{ ns.l in [ns.d] }}{{ 1|nope }}"),
        doubled("{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}", "{{ [ns.l, ns.d]|sort }}{{ 1|nope }}"),
        doubled(
            "{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}",
            "{{ [ns.l, ns.d]|unique|list }}{{ 1|nope }}",
        ),
        doubled("{% set ns.l = [ns.l, ns.l] %}", "{{ {ns.l: 1} }}{{ 1|nope }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ {ns.l: 1} }}{{ 1|nope }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ ns.l.nothing.x }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ ns.l.nothing() }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ ns.l + 1 }}"),
        doubled("{% set ns.l = (ns.l, ns.l) %}", "{{ {}[ns.l].x }}"),
        chain("{% set ns.a = [ns.a] %}", "{{ 1|nope }}"),
        chain("{% set ns.a = [ns.a] %}", "{{ ns.a }}"),
        chain("{% set ns.a = [ns.a] %}", "{{ ns.a|tojson }}"),
        chain("{% set ns.a = {'a': ns.a} %}", "{{ ns.a }}"),
        chain("{% set ns.a = [ns.a] %}{% set ns.d = [ns.d] %}", "{{ ns.a == ns.d }}{{ 1|nope }}"),
        chain("{% set ns.a = ns.a[:] %}", "{{ ns.a }}{{ 1|nope }}"),
        chain("{% set ns.a = ns.a|reverse %}", "{{ ns.a }}{{ 1|nope }}"),
        chain("{% set ns.a = ns.a + [1] %}", "{{ ns.a|length }}{{ 1|nope }}"),
        chain("{% set ns.a = ns.a|map('upper') %}", "{{ ns.a|list }}{{ 1|nope }}"),
        chain("{% set ns.a = namespace(a=ns) %}", "{{ ns.a }}{{ 1|nope }}"),
        chain("{% set ns.a = ns %}", "{{ ns }}{{ 1|nope }}"),
        chain("{% set ns.a = ns %}", "{{ ns|tojson }}{{ 1|nope }}"),
        format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        format!("{{{{ 1{} }}}}{{{{ 1|nope }}}}", " + 1".repeat(100_000)),
        format!("{{{{ 1{} }}}}", "|nope".repeat(100_000)),
        format!("{{{{ a{} }}}}", ".b".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "[".repeat(100_000)),
        format!("{{{{ {} 1 }}}}{{{{ 1|nope }}}}", "1 if 1 else ".repeat(10_000)),
        format!("{{{{ {} 1 }}}}{{{{ 1|nope }}}}", "1 and ".repeat(100_000)),
        format!("{}{}{{{{ 1|nope }}}}", "{% if 1 %}".repeat(10_000), "{% endif %}".repeat(10_000)),
        format!("{}{}{{{{ 1|nope }}}}", "{% for i in [1] %}".repeat(10_000), "{% endfor %}".repeat(10_000)),
        format!("{{% if 0 %}}{}{{% endif %}}{{{{ 1|nope }}}}", "{% elif 0 %}".repeat(50_000)),
        "x".repeat(2 << 20),
    ];
    for source in sources {
        let started = Instant::now();
        let shown: String = source.chars().take(200).collect();
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{shown}");
        }
        let result = render(&source);
        let error = result.map(|text| text.len()).expect_err(&shown).to_string();
        let took = started.elapsed();
        if std::env::var_os("SHOW").is_some() {
            eprintln!("   {took:?} {error:.200}");
        }
        assert!(error.len() < 1000, "{shown}: {} bytes of error", error.len());
        assert!(took < Duration::from_secs(5), "{shown}: {took:?}");
    }
}

#[test]
fn words_of_raise_exception_reach_the_caller() {
    let error = render("{% if true %}{{ raise_exception('Roles must alternate') }}{% endif %}").unwrap_err();
    assert!(matches!(&error, ChatError::Raised { message } if message == "Roles must alternate"), "{error}");
}

#[test]
fn mistakes_name_their_line() {
    let error = render("a\n{% if %}").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let error = render("a\n\n{{ messages[0].content.nothing.more }}").unwrap_err().to_string();
    assert!(error.contains("line 3"), "{error}");
}

#[test]
fn long_conversations_are_rendered() {
    let turns: Vec<Value> = (0..2000)
        .map(|i| json!({"role": (if i % 2 == 0 { "user" } else { "assistant" }), "content": "word ".repeat(1000)}))
        .collect();
    let chatml = default_for("qwen3moe").unwrap();
    let text = render_with(chatml.source, &conversation(&Value::Array(turns))).unwrap();
    assert!(text.len() > 10_000_000);
}

#[test]
fn a_file_without_a_template_gets_its_architectures_own() {
    let messages = json!([
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yo"},
        {"role": "user", "content": " \nbye\n"},
    ]);
    let special = SpecialTexts { bos: Some("|||".to_owned()), eos: Some("|||".to_owned()), ..SpecialTexts::default() };
    let text = |architecture: &str, add_generation_prompt: bool, messages: &Value| {
        let template = ChatTemplate::new(default_for(architecture).unwrap().source).unwrap();
        let conversation = Conversation { add_generation_prompt, ..conversation(messages) };
        template.render(&conversation, &special, &Limits::default()).unwrap()
    };
    assert_eq!(
        text("qwen3moe", true, &messages),
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n\
         <|im_start|>user\n \nbye\n<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        text("olmoe", true, &messages),
        "|||<|system|>\nS\n<|user|>\nHi\n<|assistant|>\nYo|||\n<|user|>\n \nbye\n\n<|assistant|>\n"
    );
    let answered = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]);
    assert_eq!(text("olmoe", false, &answered), "|||<|user|>\nHi\n<|assistant|>\nYo|||");
    assert_eq!(default_for("llama"), None);
}

#[test]
fn the_date_is_the_callers() {
    let conversation = Conversation { now_seconds: 951_827_696, ..Conversation::default() };
    assert_eq!(render_with("{{ strftime_now('%d %b %Y') }}", &conversation).unwrap(), "29 Feb 2000");
}

#[test]
fn variables_come_before_special_tokens_and_after_the_conversation() {
    let variables = json!({"bos_token": "B", "messages": "M", "enable_thinking": false}).as_object().unwrap().clone();
    let conversation = Conversation { variables, ..Conversation::default() };
    let special = SpecialTexts { bos: Some("b".to_owned()), eos: Some("e".to_owned()), ..SpecialTexts::default() };
    let source = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ messages }}{{ enable_thinking }}{{ tools }}";
    let text = ChatTemplate::new(source).unwrap().render(&conversation, &special, &Limits::default()).unwrap();
    assert_eq!(text, "Be[]FalseNone");
}
