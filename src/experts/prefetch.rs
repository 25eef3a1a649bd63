//! Which experts to read before they are asked for, and whether that pays.

use std::time::{Duration, Instant};

/// How experts are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Not at all.
    Off,
    /// Those that the layer chose for the previous token.
    Prev,
    /// Those that the layer's router picks for the residual stream as it is before this layer's experts.
    Ahead,
    /// `Ahead`, but off while it does not pay, measured as it runs.
    #[default]
    Auto,
}

/// How good predictions were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredictionCounts {
    /// Experts predicted.
    pub predicted: u64,
    /// Of these, experts that were then chosen.
    pub confirmed: u64,
    /// Experts chosen where there was a prediction.
    pub chosen: u64,
}

impl std::iter::Sum for PredictionCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, counts| Self {
            predicted: sum.predicted + counts.predicted,
            confirmed: sum.confirmed + counts.confirmed,
            chosen: sum.chosen + counts.chosen,
        })
    }
}

/// Keeps what is known of the coming layer and scores what was said of the present one.
#[derive(Debug)]
pub(super) struct Predictor {
    prefetch: Prefetch,
    /// Experts of each layer's last token.
    previous: Vec<Vec<u32>>,
    /// What was predicted for each layer since its last token.
    predicted: Vec<Vec<u32>>,
    /// A guess at a layer's experts from the residual stream.
    ahead: Option<(usize, Vec<u32>)>,
    /// Of each layer.
    counts: Vec<PredictionCounts>,
    trial: Trial,
}

impl Predictor {
    pub fn new(prefetch: Prefetch, n_layers: usize) -> Self {
        let none = vec![Vec::new(); n_layers];
        Self {
            prefetch,
            previous: none.clone(),
            predicted: none,
            ahead: None,
            counts: vec![PredictionCounts::default(); n_layers],
            trial: Trial::new(),
        }
    }

    /// Whether guesses from the residual stream are wanted.
    pub fn looks_ahead(&self) -> bool {
        match self.prefetch {
            Prefetch::Off | Prefetch::Prev => false,
            Prefetch::Ahead => true,
            Prefetch::Auto => self.trial.on,
        }
    }

    /// Takes a guess at the experts of `layer`.
    pub fn expect(&mut self, layer: usize, experts: Vec<u32>) {
        self.ahead = Some((layer, experts));
    }

    /// Takes the experts that `layer` chose for a token, and gives the layer that comes next with the experts to
    /// prefetch for it.
    pub fn chose(&mut self, layer: usize, experts: &[u32]) -> (usize, Vec<u32>) {
        let predicted = std::mem::take(&mut self.predicted[layer]);
        if !predicted.is_empty() {
            let counts = &mut self.counts[layer];
            counts.predicted += predicted.len() as u64;
            counts.confirmed += predicted.iter().filter(|expert| experts.contains(expert)).count() as u64;
            counts.chosen += experts.len() as u64;
        }
        self.previous[layer] = experts.to_vec();
        let next = (layer + 1) % self.previous.len();
        let guess = match self.ahead.take() {
            Some((layer, experts)) if layer == next => experts,
            // Before a token begins nothing is known of it but the token before.
            _ if self.looks_ahead() && next == 0 => self.previous[0].clone(),
            _ if self.prefetch == Prefetch::Prev => self.previous[next].clone(),
            _ => Vec::new(),
        };
        self.predicted[next].clone_from(&guess);
        (next, guess)
    }

    /// Forgets what was said of a token: a batch of tokens came in between.
    pub fn interrupted(&mut self) {
        self.ahead = None;
        self.predicted.iter_mut().for_each(Vec::clear);
        self.trial.restart_clock();
    }

    /// Takes the end of a token.
    pub fn end_token(&mut self) {
        if self.prefetch == Prefetch::Auto {
            self.trial.token(Instant::now());
        }
    }

    /// How good predictions of each layer were.
    pub fn counts(&self) -> &[PredictionCounts] {
        &self.counts
    }
}

/// Tries both ways in turn, then keeps the faster one for a while.
#[derive(Debug)]
struct Trial {
    on: bool,
    phase: Phase,
    /// Times of the tokens of each way in this trial: off, on.
    times: [Vec<Duration>; 2],
    last: Option<Instant>,
}

#[derive(Debug, PartialEq)]
enum Phase {
    /// Tokens left of a part of the trial, and parts left after it.
    Trying { tokens: usize, parts: usize },
    /// Tokens left until the next trial.
    Settled { tokens: usize },
}

/// Tokens of a part; the first of each is not counted, for it meets what the other way left behind.
const PART_TOKENS: usize = 8;
/// Parts of a trial: on, off, on, off.
const PARTS: usize = 4;
/// Tokens between two trials: a trial's slower half costs a few per cent of them at most.
const SETTLED_TOKENS: usize = 256;

impl Trial {
    fn new() -> Self {
        let phase = Phase::Trying { tokens: PART_TOKENS, parts: PARTS - 1 };
        Self { on: true, phase, times: [Vec::new(), Vec::new()], last: None }
    }

    fn restart_clock(&mut self) {
        self.last = None;
    }

    fn token(&mut self, now: Instant) {
        let time = self.last.replace(now).map(|last| now.duration_since(last));
        match &mut self.phase {
            Phase::Settled { tokens: 0 } => *self = Self { last: self.last, ..Self::new() },
            Phase::Settled { tokens } => *tokens -= 1,
            Phase::Trying { tokens, parts } => {
                if *tokens < PART_TOKENS {
                    self.times[usize::from(self.on)].extend(time);
                }
                *tokens -= 1;
                if *tokens > 0 {
                    return;
                }
                if *parts > 0 {
                    (*tokens, *parts) = (PART_TOKENS, *parts - 1);
                    self.on = !self.on;
                } else {
                    let [off, on] = self.times.each_mut().map(|times| median(times));
                    self.on = on <= off;
                    self.phase = Phase::Settled { tokens: SETTLED_TOKENS };
                }
            }
        }
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `n` tokens that take `on_ms` with prefetching and `off_ms` without, and says how often it was on.
    fn run(trial: &mut Trial, n: usize, on_ms: u64, off_ms: u64) -> usize {
        let mut now = Instant::now();
        let mut on = 0;
        for _ in 0..n {
            on += usize::from(trial.on);
            now += Duration::from_millis(if trial.on { on_ms } else { off_ms });
            trial.token(now);
        }
        on
    }

    #[test]
    fn the_faster_way_is_kept_between_trials() {
        let trial_tokens = PARTS * PART_TOKENS;
        let mut trial = Trial::new();
        assert_eq!(run(&mut trial, trial_tokens, 10, 20), trial_tokens / 2);
        assert_eq!(run(&mut trial, SETTLED_TOKENS, 10, 20), SETTLED_TOKENS);
        let mut trial = Trial::new();
        run(&mut trial, trial_tokens, 20, 10);
        assert_eq!(run(&mut trial, SETTLED_TOKENS, 20, 10), 0);
    }

    #[test]
    fn a_way_that_comes_to_pay_is_found_by_the_next_trial() {
        let mut trial = Trial::new();
        run(&mut trial, PARTS * PART_TOKENS + SETTLED_TOKENS, 20, 10);
        assert!(!trial.on);
        run(&mut trial, PARTS * PART_TOKENS + 1, 10, 20);
        assert!(trial.on);
    }

    #[test]
    fn the_previous_token_predicts_each_layer_and_is_scored() {
        let mut predictor = Predictor::new(Prefetch::Prev, 2);
        assert_eq!(predictor.chose(0, &[1, 2]), (1, vec![]));
        assert_eq!(predictor.chose(1, &[3, 4]), (0, vec![1, 2]));
        assert_eq!(predictor.chose(0, &[2, 5]), (1, vec![3, 4]));
        let total: PredictionCounts = predictor.counts().iter().copied().sum();
        assert_eq!(total, PredictionCounts { predicted: 2, confirmed: 1, chosen: 2 });
        assert_eq!(predictor.counts(), [total, PredictionCounts::default()]);
    }

    #[test]
    fn a_guess_ahead_serves_the_layer_that_it_is_for() {
        let mut predictor = Predictor::new(Prefetch::Ahead, 3);
        predictor.expect(1, vec![7]);
        assert_eq!(predictor.chose(0, &[1]), (1, vec![7]));
        assert_eq!(predictor.chose(1, &[7]), (2, vec![]));
        assert_eq!(predictor.chose(2, &[1]), (0, vec![1]));
        assert_eq!(predictor.counts()[1], PredictionCounts { predicted: 1, confirmed: 1, chosen: 1 });
        assert_eq!(predictor.counts().iter().map(|counts| counts.predicted).sum::<u64>(), 1);
    }

    #[test]
    fn nothing_is_predicted_where_it_is_off() {
        let mut predictor = Predictor::new(Prefetch::Off, 1);
        assert_eq!(predictor.chose(0, &[1]), (0, vec![]));
        assert!(!predictor.looks_ahead());
    }
}
