//! Chat templates of real models, and the language's corners, against what Python's Jinja gives for them.
//!
//! The cases and where they come from are described in `__test__/data/chat/README.md`.

use std::fs;
use std::path::PathBuf;

use clutor::chat::{ChatError, ChatTemplate, Conversation, Limits, SpecialTexts};
use serde_json::{Map, Value};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("__test__/data/chat").join(name)
}

fn source_of(case: &Value) -> String {
    match (&case["template"], &case["template_text"]) {
        (Value::String(name), _) => fs::read_to_string(path(name)).expect("the templates are in the repository"),
        (_, Value::String(text)) => text.clone(),
        _ => panic!("a case without a template: {case}"),
    }
}

fn rendered(case: &Value) -> Result<String, ChatError> {
    let special = |name: &str| case["variables"][name].as_str().map(str::to_owned);
    let special = SpecialTexts { bos: special("bos_token"), eos: special("eos_token"), ..SpecialTexts::default() };
    let mut variables: Map<String, Value> = case["input"].as_object().expect("an object").clone();
    let messages = variables.remove("messages").expect("messages");
    let tools = variables.remove("tools");
    let conversation = Conversation {
        messages: messages.as_array().expect("a list").clone(),
        tools: tools.and_then(|tools| tools.as_array().cloned()),
        add_generation_prompt: variables.remove("add_generation_prompt").is_none_or(|value| value == true),
        variables,
        now_seconds: 1_735_689_599,
    };
    ChatTemplate::new(&source_of(case))?.render(&conversation, &special, &Limits::default())
}

#[test]
fn templates_give_the_text_that_python_gives() {
    let lines = fs::read_to_string(path("chat_cases.jsonl")).expect("the cases are in the repository");
    let cases: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(cases.len(), 103);
    let (mut texts, mut refusals, mut failed) = (0, 0, Vec::new());
    for case in &cases {
        let name = format!("{} {} {}", case["id"], case["template"], case["scenario"]);
        match (rendered(case), case["expect"]["text"].as_str(), case["expect"]["error"].as_str()) {
            (Ok(text), Some(expected), _) if text == expected => texts += 1,
            (Ok(text), expected, error) => {
                failed.push(format!("{name}\n  gave {text:?}\n  not  {expected:?} {error:?}"))
            }
            (Err(ChatError::Raised { message }), None, Some(expected)) if expected.ends_with(&message) => refusals += 1,
            (Err(error), None, Some(expected)) if !expected.starts_with("TemplateError") => {
                assert!(!error.to_string().is_empty());
                refusals += 1;
            }
            (Err(error), text, expected) => {
                failed.push(format!("{name}\n  failed: {error}\n  not  {text:?} {expected:?}"))
            }
        }
    }
    println!("{texts} texts and {refusals} refusals right, of {} cases", cases.len());
    assert!(failed.is_empty(), "{} cases wrong:\n{}", failed.len(), failed.join("\n"));
}
