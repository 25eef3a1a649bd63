//! W-TinyLFU, with a fixed window or one that adapts.
//!
//! ```text
//!  new ─► window (LRU) ─► candidate ─┬ used more often than the victim ─► probation ─hit─► protected
//!                                    └ else: evicted (a reject)               ▲ oldest of too many │
//!                                                                             └────────────────────┘
//! ```
//! The paper's count-min sketch serves unbounded key spaces; here each key has its own count.

use super::lfu::REQUESTS_PER_SLOT;
use super::list::{Links, List};
use super::order::{Order, Pins, Request, Shape};

/// Share of the main part that is protected, as in the paper's section 4.1.
const PROTECTED_SHARE: f32 = 0.8;
/// Largest count, as with the paper's counters of 4 bits.
const MAX_COUNT: u8 = 15;

pub(super) struct TinyLfu {
    counts: Vec<u8>,
    period: usize,
    n_requests: usize,
    links: Links,
    part_of: Vec<Part>,
    window: List,
    probation: List,
    protected: List,
    n_slots: usize,
    window_slots: usize,
    climber: Option<Climber>,
    rejected: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Window,
    Probation,
    Protected,
}

impl TinyLfu {
    /// `window` is a share of the slots; the window has one slot at least.
    pub(super) fn with_window(shape: Shape, window: f32) -> Self {
        let n_slots = shape.n_slots;
        Self {
            counts: vec![0; shape.n_keys()],
            period: REQUESTS_PER_SLOT * n_slots.max(1),
            n_requests: 0,
            links: Links::new(shape.n_keys()),
            part_of: vec![Part::Window; shape.n_keys()],
            window: List::new(),
            probation: List::new(),
            protected: List::new(),
            n_slots,
            window_slots: window_slots(n_slots, window),
            climber: None,
            rejected: 0,
        }
    }

    pub(super) fn adaptive(shape: Shape) -> Self {
        let climber = Climber::new(shape.n_slots);
        Self { climber: Some(climber), ..Self::with_window(shape, climber.window) }
    }

    fn protected_slots(&self) -> usize {
        ((self.n_slots - self.window_slots.min(self.n_slots)) as f32 * PROTECTED_SHARE) as usize
    }

    fn enter(&mut self, part: Part, key: u32) {
        self.part_of[key as usize] = part;
        let list = match part {
            Part::Window => &mut self.window,
            Part::Probation => &mut self.probation,
            Part::Protected => &mut self.protected,
        };
        list.push(&mut self.links, key);
    }

    fn leave(&mut self, key: u32) {
        let list = match self.part_of[key as usize] {
            Part::Window => &mut self.window,
            Part::Probation => &mut self.probation,
            Part::Protected => &mut self.protected,
        };
        list.remove(&mut self.links, key);
    }

    /// What leaves the main part first.
    fn main_victim(&self, pins: &Pins) -> Option<u32> {
        let is_free = |key: u32| pins[key as usize] == 0;
        self.probation.oldest_where(&self.links, is_free).or_else(|| self.protected.oldest_where(&self.links, is_free))
    }

    fn shrink_window(&mut self) {
        while self.window.len() > self.window_slots
            && let Some(key) = self.window.oldest()
        {
            self.leave(key);
            self.enter(Part::Probation, key);
        }
    }
}

impl Order for TinyLfu {
    fn request(&mut self, request: Request) {
        let count = &mut self.counts[request.key as usize];
        *count = (u32::from(*count).saturating_add(request.n_choices)).min(MAX_COUNT.into()) as u8;
        self.n_requests += 1;
        if self.n_requests == self.period {
            self.n_requests = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
        if let Some(window) = self.climber.as_mut().and_then(Climber::request) {
            self.window_slots = window_slots(self.n_slots, window);
            self.shrink_window();
        }
    }

    fn hit(&mut self, request: Request) {
        if let Some(climber) = &mut self.climber {
            climber.n_hits += 1;
        }
        let key = request.key;
        match self.part_of[key as usize] {
            Part::Window => self.window.renew(&mut self.links, key),
            Part::Protected => self.protected.renew(&mut self.links, key),
            Part::Probation => {
                self.leave(key);
                self.enter(Part::Protected, key);
            }
        }
        while self.protected.len() > self.protected_slots()
            && let Some(oldest) = self.protected.oldest()
        {
            self.leave(oldest);
            self.enter(Part::Probation, oldest);
        }
    }

    fn insert(&mut self, key: u32, _at: u64) {
        self.enter(Part::Window, key);
        self.shrink_window();
    }

    fn remove(&mut self, key: u32) {
        self.leave(key);
    }

    fn victim(&mut self, _incoming: u32, pins: &Pins) -> Option<u32> {
        let candidate = self.window.oldest_where(&self.links, |key| pins[key as usize] == 0);
        let victim = match (candidate, self.main_victim(pins)) {
            (None, victim) => victim?,
            (Some(candidate), None) => candidate,
            (Some(_), Some(victim)) if self.window.len() < self.window_slots => victim,
            (Some(candidate), Some(victim)) => {
                if self.counts[candidate as usize] > self.counts[victim as usize] {
                    self.leave(candidate);
                    self.enter(Part::Probation, candidate);
                    victim
                } else {
                    self.rejected += 1;
                    candidate
                }
            }
        };
        self.leave(victim);
        Some(victim)
    }

    fn warm(&mut self, key: u32, weight: f32) {
        self.counts[key as usize] = (weight.ceil() as u32).min(MAX_COUNT.into()) as u8;
    }

    fn rejected(&self) -> u64 {
        self.rejected
    }
}

fn window_slots(n_slots: usize, window: f32) -> usize {
    ((n_slots as f32 * window).round() as usize).clamp(1, n_slots.max(1))
}

/// Moves the window in the direction in which the hit rate rose, in steps that shrink.
#[derive(Clone, Copy, Debug)]
struct Climber {
    /// Share of the slots, 0 to 1.
    window: f32,
    /// Signed share by which the window moves next.
    step: f32,
    period: u32,
    n_requests: u32,
    n_hits: u32,
    hit_rate: f32,
}

impl Climber {
    const FIRST_WINDOW: f32 = 0.3;
    const FIRST_STEP: f32 = 0.0625;
    const STEP_DECAY: f32 = 0.98;
    /// A change of the hit rate as large as this means other text: steps start anew. From the paper's section 4.1.
    const RESTART: f32 = 0.05;
    /// Requests per slot in one sample: long enough for the new window to fill.
    const PERIOD: usize = 4;

    fn new(n_slots: usize) -> Self {
        let period = u32::try_from(Self::PERIOD * n_slots.max(1)).unwrap_or(u32::MAX);
        Self { window: Self::FIRST_WINDOW, step: Self::FIRST_STEP, period, n_requests: 0, n_hits: 0, hit_rate: 0.0 }
    }

    /// Counts a request; gives the new window at the end of a sample.
    fn request(&mut self) -> Option<f32> {
        self.n_requests += 1;
        if self.n_requests < self.period {
            return None;
        }
        let hit_rate = self.n_hits as f32 / self.n_requests as f32;
        let change = hit_rate - self.hit_rate;
        let direction = if change < 0.0 { -self.step.signum() } else { self.step.signum() };
        let size = if change.abs() >= Self::RESTART { Self::FIRST_STEP } else { self.step.abs() * Self::STEP_DECAY };
        self.step = direction * size;
        self.window = (self.window + self.step).clamp(0.0, 1.0);
        (self.n_requests, self.n_hits, self.hit_rate) = (0, 0, hit_rate);
        Some(self.window)
    }
}
