//! Stop strings in text that arrives in parts.

/// Passes text on up to the first stop string, and holds back what could be the beginning of one.
#[derive(Debug)]
pub(super) struct StopFilter {
    stops: Vec<String>,
    /// Text that is not passed on yet.
    held: String,
}

/// What [`StopFilter::push`] lets through.
#[derive(Debug, PartialEq)]
pub(super) struct Passed {
    /// Text before any stop string.
    pub text: String,
    /// True where a stop string was found; it and what follows are dropped.
    pub stopped: bool,
}

impl StopFilter {
    /// A filter for `stops`; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        Self { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Takes the next part of the text. Where several stop strings occur, the one that begins first counts.
    pub fn push(&mut self, text: &str) -> Passed {
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            self.held.truncate(at);
            return Passed { text: std::mem::take(&mut self.held), stopped: true };
        }
        let certain = self.held.len() - self.undecided();
        let rest = self.held.split_off(certain);
        Passed { text: std::mem::replace(&mut self.held, rest), stopped: false }
    }

    /// The text that was held back: no stop string can be completed any more.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of the held text that a stop string could begin with.
    fn undecided(&self) -> usize {
        let longest = |stop: &String| {
            // A proper prefix only: a whole one was looked for before.
            let ends = stop.char_indices().map(|(i, _)| i).skip(1).filter(|&i| i <= self.held.len());
            ends.filter(|&i| self.held.ends_with(&stop[..i])).max().unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in parts of `step` characters; gives what was passed on and whether it stopped.
    fn run(stops: &[&str], text: &str, step: usize) -> (String, bool) {
        let mut filter = StopFilter::new(&stops.iter().map(ToString::to_string).collect::<Vec<_>>());
        let (mut out, chars) = (String::new(), text.chars().collect::<Vec<_>>());
        for part in chars.chunks(step) {
            let passed = filter.push(&part.iter().collect::<String>());
            out += &passed.text;
            if passed.stopped {
                return (out, true);
            }
        }
        out += &filter.finish();
        (out, false)
    }

    #[test]
    fn text_ends_before_the_stop_string_however_it_is_cut() {
        for step in 1..12 {
            assert_eq!(run(&["END"], "one E EN END two", step), ("one E EN ".into(), true), "step {step}");
            assert_eq!(run(&["aab"], "aaab", step), ("a".into(), true), "step {step}");
            assert_eq!(run(&["é\n\n"], "né\né\n\nx", step), ("né\n".into(), true), "step {step}");
            assert_eq!(run(&["xyz"], "xy xyx xy", step), ("xy xyx xy".into(), false), "step {step}");
        }
    }

    #[test]
    fn the_stop_string_that_begins_first_counts() {
        for step in 1..6 {
            assert!(run(&["cd", "bcde"], "abcdef", step).1);
        }
        assert_eq!(run(&["cd", "bcde"], "abcdef", 6), ("a".into(), true));
    }

    #[test]
    fn no_text_is_held_back_without_need() {
        let mut filter = StopFilter::new(&["stop".into(), String::new()]);
        assert_eq!(filter.push("a st"), Passed { text: "a ".into(), stopped: false });
        assert_eq!(filter.push("ay"), Passed { text: "stay".into(), stopped: false });
    }
}
