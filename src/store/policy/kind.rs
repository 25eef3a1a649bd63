//! Names and parameters of the policies.

use std::fmt;
use std::str::FromStr;

use super::frequency::{Budget, Frequency};
use super::lfu::Lfu;
use super::lru::Lru;
use super::order::{Order, Shape};
use super::tiny_lfu::TinyLfu;

/// Half-life of [`PolicyKind::DecayedFrequency`] unless given: the middle of the range (16 to 64) that does well.
const DECAYED_HALF_LIFE: f32 = 32.0;
/// Parameters of the default, chosen on the recorded traces (`cargo bench --bench policy`): flat optima, a half-life of
/// 8 or 32 and a bonus of 4 or 8 cost about a point at most.
const LAYER_AWARE_HALF_LIFE: f32 = 16.0;
const LAYER_AWARE_BONUS: f32 = 6.0;
/// Window of [`PolicyKind::WTinyLfu`] unless given; the usual 1 % is for keys that seldom come in bursts.
const TINY_LFU_WINDOW: f32 = 0.3;

/// Which experts stay.
///
/// As text: `lru`, `lfu`, `w-tinylfu`, `adaptive`, `decayed-lfu`, `layer-aware`; a parameter may follow a colon
/// (`w-tinylfu:0.01`, `decayed-lfu:16`, `layer-aware:32`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyKind {
    /// The least recently used makes way.
    Lru,
    /// The least often used makes way; counts outlive eviction and are halved now and then.
    Lfu,
    /// A window of recent keys before a main part that a key enters only by being used more often than the one that
    /// would have to go. Source: Einziger et al. 2017, TinyLFU, arXiv 1512.00727.
    WTinyLfu {
        /// Share of the slots that the window has, 0 to 1.
        window: f32,
    },
    /// W-TinyLFU whose window climbs towards the better hit rate. Source: Einziger et al. 2018, Adaptive Software Cache
    /// Management, Middleware '18.
    Adaptive,
    /// Each layer has an equal share of the slots; within it, the least often used makes way. Uses count half after
    /// `half_life_tokens` and outlive eviction.
    DecayedFrequency {
        /// Tokens after which a use counts half; above 0.
        half_life_tokens: f32,
    },
    /// All layers share the slots; the least often used makes way, as above, but those that a layer used for its last
    /// token count as used `last_set_bonus` times more. A layer's age is measured in its own tokens, so that layers
    /// whose turn is about to come do not look stale beside those that have just had it.
    LayerAware {
        /// Tokens after which a use counts half; above 0.
        half_life_tokens: f32,
        /// Uses that having been chosen for the layer's last token is worth.
        last_set_bonus: f32,
    },
}

impl Default for PolicyKind {
    fn default() -> Self {
        Self::LayerAware { half_life_tokens: LAYER_AWARE_HALF_LIFE, last_set_bonus: LAYER_AWARE_BONUS }
    }
}

/// A name that no policy has, or a parameter out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no cache policy `{0}`; choose lru, lfu, w-tinylfu[:share of the window, 0 to 1], adaptive, \
     decayed-lfu[:half-life in tokens] or layer-aware[:half-life in tokens]"
)]
pub struct UnknownPolicy(pub String);

impl PolicyKind {
    /// One of each, with its usual parameters.
    pub const ALL: [Self; 6] = [
        Self::Lru,
        Self::Lfu,
        Self::WTinyLfu { window: TINY_LFU_WINDOW },
        Self::Adaptive,
        Self::DecayedFrequency { half_life_tokens: DECAYED_HALF_LIFE },
        Self::LayerAware { half_life_tokens: LAYER_AWARE_HALF_LIFE, last_set_bonus: LAYER_AWARE_BONUS },
    ];

    /// Name without parameters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::WTinyLfu { .. } => "w-tinylfu",
            Self::Adaptive => "adaptive",
            Self::DecayedFrequency { .. } => "decayed-lfu",
            Self::LayerAware { .. } => "layer-aware",
        }
    }

    pub(super) fn order(self, shape: Shape) -> Box<dyn Order> {
        match self {
            Self::Lru => Box::new(Lru::new(shape)),
            Self::Lfu => Box::new(Lfu::new(shape)),
            Self::WTinyLfu { window } => Box::new(TinyLfu::with_window(shape, window)),
            Self::Adaptive => Box::new(TinyLfu::adaptive(shape)),
            Self::DecayedFrequency { half_life_tokens } => {
                Box::new(Frequency::new(shape, half_life_tokens, 0.0, Budget::PerLayer))
            }
            Self::LayerAware { half_life_tokens, last_set_bonus } => {
                Box::new(Frequency::new(shape, half_life_tokens, last_set_bonus, Budget::Shared))
            }
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Lru | Self::Lfu | Self::Adaptive => Ok(()),
            Self::WTinyLfu { window } => write!(f, ":{window}"),
            Self::DecayedFrequency { half_life_tokens } | Self::LayerAware { half_life_tokens, .. } => {
                write!(f, ":{half_life_tokens}")
            }
        }
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_owned());
        let (name, parameter) = match text.split_once(':') {
            None => (text, None),
            Some((name, parameter)) => (name, Some(parameter.parse::<f32>().map_err(|_| unknown())?)),
        };
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)?;
        let Some(parameter) = parameter else { return Ok(kind) };
        let is_half_life = parameter.is_finite() && parameter > 0.0;
        match kind {
            Self::WTinyLfu { .. } if (0.0..=1.0).contains(&parameter) => Ok(Self::WTinyLfu { window: parameter }),
            Self::DecayedFrequency { .. } if is_half_life => Ok(Self::DecayedFrequency { half_life_tokens: parameter }),
            Self::LayerAware { last_set_bonus, .. } if is_half_life => {
                Ok(Self::LayerAware { half_life_tokens: parameter, last_set_bonus })
            }
            _ => Err(unknown()),
        }
    }
}
