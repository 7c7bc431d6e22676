//! The suite over SQLite.

use crate::common::Sqlite;

async fn open() -> Sqlite {
    Sqlite::open()
}

tidegate_conformance::suite!(sqlite, super::open);
