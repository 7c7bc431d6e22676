//! The suite over SQLite.

mod common;

use common::Sqlite;

async fn open() -> Sqlite {
    Sqlite::open()
}

tidegate_conformance::suite!(sqlite, super::open);
