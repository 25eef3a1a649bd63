use super::*;
use serde_json::{Value, json};

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
fn templates_may_gather_the_messages_of_a_long_conversation() {
    let turns: Vec<Value> = (0..1000).map(|i| json!({"role": "user", "content": format!("{i}").repeat(500)})).collect();
    let source = "{% set ns = namespace(all=[]) %}{% for message in messages %}{% set ns.all = ns.all + [message] %}\
                  {% endfor %}{{ ns.all|length }}";
    assert_eq!(render_with(source, &conversation(&Value::Array(turns))).unwrap(), "1000");
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
