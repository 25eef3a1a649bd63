//! The command line.

use super::SynthesizeError;
use super::plan::{Mix, TypeRule};
use super::shape::{PRESETS, Shape};
use std::path::PathBuf;

/// What the command is to do.
#[derive(Debug)]
pub enum Command {
    Help,
    Write(Box<Options>),
}

/// What to write, and where.
#[derive(Clone, Debug)]
pub struct Options {
    pub shape: Shape,
    pub path: PathBuf,
    pub mix: Mix,
    /// Types of single tensors; the last that fits counts.
    pub rules: Vec<TypeRule>,
    pub seed: u64,
    pub routing: Routing,
    /// Replace a file that exists.
    pub force: bool,
    /// Write only the tensors whose names contain this, into a file that exists.
    pub only: Option<String>,
    pub n_threads: usize,
    /// The preset and the options that decide what is written, as given, for the file's description.
    pub given: Vec<String>,
}

/// How uneven the router is. All strengths are in units of the spread that [`Routing::noise`] 1 would give.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// Neither popular experts nor topics: the worst case for any cache.
    pub uniform: bool,
    /// Spread of the experts' popularity.
    pub skew: f64,
    /// Number of topics.
    pub topics: usize,
    /// Spread of the topics' preferences among experts.
    pub preference: f64,
    /// Spread of what depends on the token and its context.
    pub noise: f64,
    /// Logit bonus of tokens of the current topic: how long a text stays with it.
    pub stay: f64,
}

/// Fitted to a recorded routing of Qwen3-30B-A3B: 48 layers, 28 + 128 tokens, 6 of 128 experts used (Helldez/BigMoeOnEdge,
/// docs/bench-data). There a token has 37 % of its experts in common with the token before, 29 % with the second, 26 %
/// with the fourth and 25 % with the sixteenth before; the preset of that shape, sampled, has 36, 28, 26 and 27 %. A
/// least-recently-used cache of 5, 10, 20 and 40 % of all experts hits in 38, 50, 74 and 94 % there, in 36, 49, 73 and
/// 94 % here.
impl Default for Routing {
    fn default() -> Self {
        Self { uniform: false, skew: 1.1, topics: 32, preference: 1.0, noise: 0.6, stay: 3.6 }
    }
}

/// The text of `--help`.
pub fn usage() -> String {
    let Routing { skew, topics, preference, noise, stay, .. } = Routing::default();
    format!(
        "usage: synthesize PRESET OUT.gguf [options]

Writes a model with random weights for measurements. Presets: {presets}.
Text must be sampled (temperature 1, no top-k) or given: a random model that always takes the
likeliest token soon repeats itself, and then any cache looks perfect.

shape (defaults are the preset's)
  --layers N --embed N --heads N --kv-heads N --head-dim N --experts N --used N --expert-dim N
  --vocab N --ctx N --rope-base X --norm-eps X

weights
  --type T                a mix or a type: {types} (default Q4_K_M)
  --tensor-type PART=T    type of the tensors whose names contain PART; can be repeated, the last counts
  --seed N                (default 1)

routing
  --uniform               no popular experts and no topics: the worst case for any cache
  --skew X                spread of the experts' popularity (default {skew})
  --topics N              topics, each with experts that it prefers (default {topics})
  --preference X          spread of those preferences (default {preference})
  --noise X               spread of what depends on the single token (default {noise})
  --stay X                logit bonus of tokens of the current topic (default {stay})

output
  --force                 replace OUT.gguf
  --only PART             write only the tensors whose names contain PART anew, in the OUT.gguf that
                          the same options made
  --threads N             (default: all processors)",
        presets = PRESETS.map(|shape| shape.preset).join(", "),
        types = Mix::names().join(" "),
    )
}

/// Reads the command line, without the program's name.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Command, SynthesizeError> {
    let given: Vec<String> = args.collect();
    if given.iter().any(|arg| arg == "--help" || arg == "-h") {
        return Ok(Command::Help);
    }
    let mut args = given.iter();
    let (Some(preset), Some(path)) = (args.next(), args.next()) else { return Err(SynthesizeError::Missing) };
    let mut options = Options {
        shape: Shape::preset(preset)?,
        path: path.into(),
        mix: Mix::named("Q4_K_M")?,
        rules: Vec::new(),
        seed: 1,
        routing: Routing::default(),
        force: false,
        only: None,
        n_threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        given: vec![preset.clone()],
    };
    while let Some(option) = args.next() {
        let value = match option.as_str() {
            "--uniform" | "--force" => "",
            _ => args.next().ok_or_else(|| SynthesizeError::NoValue { option: option.clone() })?,
        };
        set(&mut options, option, value)?;
        // The others do not change what is written.
        if !matches!(option.as_str(), "--force" | "--only" | "--threads") {
            options.given.extend([option, value].iter().filter(|word| !word.is_empty()).map(|word| word.to_string()));
        }
    }
    options.shape.check()?;
    Ok(Command::Write(Box::new(options)))
}

fn set(options: &mut Options, option: &str, value: &str) -> Result<(), SynthesizeError> {
    let wrong = |expected| SynthesizeError::Value { option: option.into(), found: value.into(), expected };
    // Far above any model, and far below where products of two would overflow.
    let count =
        || value.parse().ok().filter(|n| (1..=1 << 24).contains(n)).ok_or(wrong("a whole number from 1 to 2^24"));
    let spread = || {
        let number = value.parse().ok().filter(|x: &f64| *x >= 0.0 && x.is_finite());
        number.ok_or(wrong("a finite number of at least 0"))
    };
    let (shape, routing) = (&mut options.shape, &mut options.routing);
    match option {
        "--layers" => shape.n_layers = count()?,
        "--embed" => shape.embed_dim = count()?,
        "--heads" => shape.n_heads = count()?,
        "--kv-heads" => shape.n_kv_heads = count()?,
        "--head-dim" => shape.head_dim = count()?,
        "--experts" => shape.n_experts = count()?,
        "--used" => shape.n_experts_used = count()?,
        "--expert-dim" => shape.expert_dim = count()?,
        "--vocab" => shape.vocab_size = count()?,
        "--ctx" => shape.n_ctx = count()?,
        "--rope-base" => shape.rope_base = spread()? as f32,
        "--norm-eps" => shape.norm_eps = spread()? as f32,
        "--type" => options.mix = Mix::named(value)?,
        "--tensor-type" => options.rules.push(TypeRule::parse(value)?),
        "--seed" => options.seed = value.parse().map_err(|_| wrong("a whole number below 2^64"))?,
        "--uniform" => routing.uniform = true,
        "--skew" => routing.skew = spread()?,
        "--topics" => routing.topics = count()?,
        "--preference" => routing.preference = spread()?,
        "--noise" => routing.noise = spread()?,
        "--stay" => routing.stay = spread()?,
        "--force" => options.force = true,
        "--only" => options.only = Some(value.into()),
        "--threads" => options.n_threads = count()?,
        _ => return Err(SynthesizeError::Option { found: option.into() }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        match parse(line.split_whitespace().map(String::from)) {
            Ok(Command::Write(options)) => Ok(*options),
            Ok(Command::Help) => Err("help".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn options_change_the_numbers_of_the_preset() {
        let options = parsed("qwen3-30b-a3b out.gguf --layers 4 --skew 0.5 --tensor-type output.weight=Q8_0").unwrap();
        assert_eq!((options.shape.n_layers, options.shape.embed_dim), (4, 2048));
        assert_eq!((options.routing.skew, options.rules.len()), (0.5, 1));
    }

    #[test]
    fn wrong_lines_are_named() {
        let cases = [
            ("", "missing"),
            ("mixtral out.gguf", "`mixtral` is not a preset"),
            ("tiny-olmoe out.gguf --layer 3", "`--layer` is not an option"),
            ("tiny-olmoe out.gguf --layers", "--layers needs a value"),
            ("tiny-olmoe out.gguf --layers 0", "from 1 to"),
            ("tiny-olmoe out.gguf --skew -1", "at least 0"),
            ("tiny-olmoe out.gguf --type Q4_Z", "`Q4_Z` is not a type"),
            ("tiny-olmoe out.gguf --tensor-type output", "must be PART=TYPE"),
            ("tiny-olmoe out.gguf --used 99", "99 of 32 experts"),
            ("tiny-olmoe out.gguf --help", "help"),
        ];
        for (line, part) in cases {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
