//! Templates for files that bring none.

/// A template that an architecture's models are known to be trained with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultTemplate {
    /// What the format is called, for messages.
    pub name: &'static str,
    /// The template.
    pub source: &'static str,
}

/// ChatML, the format of Qwen's models among others.
const CHATML: DefaultTemplate = DefaultTemplate {
    name: "chatml",
    source: "\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}",
};

/// The format of OLMoE's instruction-tuned models, which is that of the Tulu data.
const TULU: DefaultTemplate = DefaultTemplate {
    name: "tulu",
    source: "\
{{- bos_token or '' }}
{%- for message in messages %}
{{- '<|' + message.role + '|>\\n' + message.content }}
{%- if message.role == 'assistant' %}
{{- eos_token or '' }}
{%- endif %}
{%- if message.role != 'assistant' or not loop.last %}
{{- '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>\\n' }}
{%- endif %}",
};

/// The template for models of `architecture` whose file has none; `None` where no format is known.
pub fn default_for(architecture: &str) -> Option<DefaultTemplate> {
    match architecture {
        "qwen2moe" | "qwen3moe" => Some(CHATML),
        "olmoe" => Some(TULU),
        _ => None,
    }
}
