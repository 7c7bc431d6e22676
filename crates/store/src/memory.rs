//! stub
/// x
pub struct MemoryStore;
