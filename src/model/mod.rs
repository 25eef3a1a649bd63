//! Configuration, weights and the forward pass.
//!
//! [`Model::load`] opens a file; [`Model::forward`] is the path of a token. What a text needs beyond that — sampling,
//! stopping, several texts at once — is in [`crate::generate`].

mod attention;
mod config;
mod dense;
mod error;
mod forward;
mod identity;
mod kv_cache;
mod linear;
mod load;
mod moe;
mod plan;
mod resident;
mod vocabulary;
mod walk;
mod weights;
mod workspace;

pub use attention::{AttentionBuffers, HeadShape, attend, store};
pub use config::{Architecture, Config};
pub use dense::{DensePlace, RingReport};
pub use error::{ForwardError, ModelError};
pub use forward::{BatchToken, LOGIT_TOKENS, RoutingObserver};
pub use kv_cache::{CacheType, Sequence};
pub use linear::{Compute, Product, multiply};
pub use load::{LoadOptions, LoadProgress, ModelInfo};
pub use plan::{MemoryPlan, PlanReason};
pub use resident::Residency;
pub use vocabulary::{ChatTemplateTexts, read_chat_templates, read_tokenizer};
pub use walk::Walk;
pub use workspace::Workspace;

use crate::experts::{ExpertSource, PredictionCounts, StreamingReport};
use crate::kernels::Kernels;
use crate::math::Rope;
use crate::parallel::Pool;
use crate::routing::{SmartRoute, Substitutions};
use crate::tokenizer::Tokenizer;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A loaded model. It changes in nothing but its counts, so any number of texts can be generated from it; what belongs
/// to a text is in its [`Sequence`].
#[derive(Debug)]
pub struct Model {
    config: Config,
    info: ModelInfo,
    n_ctx: usize,
    cache_type: CacheType,
    dense: dense::Dense,
    weights: weights::Weights,
    experts: Box<dyn ExpertSource>,
    smart: Option<SmartRoute>,
    substitutions: Mutex<Substitutions>,
    n_tokens: AtomicU64,
    plan: MemoryPlan,
    rope: Rope,
    tokenizer: Option<Tokenizer>,
    chat_templates: ChatTemplateTexts,
    kernels: &'static dyn Kernels,
    pool: Pool,
}

impl Model {
    /// Hyper-parameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What a user wants to know about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// What products are computed with.
    pub fn kernels(&self) -> &'static dyn Kernels {
        self.kernels
    }

    /// The threads that compute.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Longest text, prompt and answer together, in tokens.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Number of logits of a token; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.weights.vocab_size
    }

    /// An empty key/value cache for one text.
    pub fn new_sequence(&self) -> Sequence {
        // Where memory is planned to the byte, nothing may be copied as it grows: that leaves holes.
        let room = if self.plan.streaming { self.n_ctx } else { 0 };
        Sequence::new(self.config.n_layers, self.config.heads(), self.cache_type, room)
    }

    /// Where its bytes are.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Tokens that went through it so far, of prompts and of answers.
    pub fn n_tokens(&self) -> u64 {
        self.n_tokens.load(Ordering::Relaxed)
    }

    /// What streaming did so far; `None` where all experts are in memory.
    pub fn streaming_report(&self) -> Option<StreamingReport> {
        self.experts.report()
    }

    /// What the ring of dense weights did so far; `None` where they are in memory.
    pub fn ring_report(&self) -> Option<RingReport> {
        match &self.dense {
            dense::Dense::Ring(ring) => Some(ring.report()),
            dense::Dense::Whole(_) | dense::Dense::Owned(_) => None,
        }
    }

    /// How good predictions of each layer's experts were so far; nothing where all experts are in memory.
    pub fn predictions(&self) -> Vec<PredictionCounts> {
        self.experts.predictions()
    }

    /// What SMART-ROUTE gave away so far; `None` where it is off.
    pub fn substitutions(&self) -> Option<Substitutions> {
        self.smart.map(|_| *self.substitutions.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// The file's chat templates.
    pub fn chat_templates(&self) -> &ChatTemplateTexts {
        &self.chat_templates
    }

    /// The file's tokenizer.
    ///
    /// # Errors
    /// Where the file has none; token ids work all the same.
    pub fn tokenizer(&self) -> Result<&Tokenizer, ModelError> {
        self.tokenizer.as_ref().ok_or(ModelError::NoTokenizer)
    }
}
