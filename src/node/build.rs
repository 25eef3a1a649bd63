//! Link flags for the Node-API binding; nothing for the engine alone.

fn main() {
    #[cfg(feature = "node")]
    napi_build::setup();
}
