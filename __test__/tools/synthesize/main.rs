//! Writes models with random weights: any size and shape, true block formats, text that works, and a router that is as
//! uneven as those of real models. They measure speed and memory without a download; what they say means nothing.
//!
//! `cargo run --release --bin synthesize -- --help` explains the command. Everything is a function of the seed, the
//! options and the tensor's name, so that one tensor can be written anew alone, on any number of threads.
//!
//! How routing becomes uneven is in [`hidden`]; what each tensor holds is in [`content`].

mod blocks;
mod content;
mod encode;
mod error;
mod gguf;
mod hidden;
mod options;
mod plan;
mod random;
mod shape;
mod vocabulary;
mod write;

use error::SynthesizeError;
use options::{Command, Options};
use plan::Plan;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = match options::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("synthesize: {error}\nsynthesize: see --help");
            return ExitCode::from(2);
        }
    };
    let outcome = match command {
        Command::Help => {
            println!("{}", options::usage());
            Ok(())
        }
        Command::Write(options) => run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("synthesize: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), SynthesizeError> {
    let plan = Plan::new(options)?;
    let done = write::write(&plan, options)?;
    let rate = done.bytes as f64 / 1e6 / done.seconds;
    eprintln!(
        "{}: {} tensors, {:.2} GB in {:.1} s ({rate:.0} MB/s), on the drive after {:.1} s",
        options.path.display(),
        done.tensors,
        done.bytes as f64 / 1e9,
        done.seconds,
        done.synced_seconds
    );
    Ok(())
}
