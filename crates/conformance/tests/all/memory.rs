//! The suite over the in-memory reference model.

use crate::common::Memory;

async fn open() -> Memory {
    Memory::open()
}

tidegate_conformance::suite!(memory, super::open);
