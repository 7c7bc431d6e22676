//! Gates under real processes: what a caller writes down, and a referee that sees nothing else.

pub mod log;
pub mod referee;
pub mod worlds;
