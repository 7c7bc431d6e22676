//! The suite over the in-memory reference model.

mod common;

use common::Memory;

async fn open() -> Memory {
    Memory::open()
}

tidegate_conformance::suite!(memory, super::open);
