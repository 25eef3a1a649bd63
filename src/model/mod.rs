//! Configuration, weights and the forward pass.
//!
//! [`Model::load`] opens a file; [`Model::forward`] is the path of a token. What a text needs beyond that — sampling,
//! stopping, several texts at once — is in [`crate::generate`].

mod attention;
mod config;
mod error;
mod forward;
mod kv_cache;
mod linear;
mod load;
mod moe;
mod vocabulary;
mod weights;
mod workspace;

pub use config::{Architecture, Config};
pub use error::{ForwardError, ModelError};
pub use forward::{BatchToken, RoutingObserver};
pub use kv_cache::{CacheType, Sequence};
pub use load::{LoadOptions, LoadProgress, ModelInfo};
pub use vocabulary::read_tokenizer;
pub use workspace::Workspace;

use crate::experts::ExpertSource;
use crate::gguf::MappedGguf;
use crate::kernels::Kernels;
use crate::math::Rope;
use crate::parallel::Pool;
use crate::tokenizer::Tokenizer;
use std::sync::Arc;

/// A loaded model. It never changes, so any number of texts can be generated from it; what belongs to a text is in its
/// [`Sequence`].
#[derive(Debug)]
pub struct Model {
    config: Config,
    info: ModelInfo,
    n_ctx: usize,
    cache_type: CacheType,
    files: Arc<MappedGguf>,
    weights: weights::Weights,
    experts: Box<dyn ExpertSource>,
    rope: Rope,
    tokenizer: Option<Tokenizer>,
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
        Sequence::new(self.config.n_layers, self.config.kv_dim(), self.cache_type)
    }

    /// The file's tokenizer.
    ///
    /// # Errors
    /// Where the file has none; token ids work all the same.
    pub fn tokenizer(&self) -> Result<&Tokenizer, ModelError> {
        self.tokenizer.as_ref().ok_or(ModelError::NoTokenizer)
    }
}
