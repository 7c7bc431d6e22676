//! The scripts: one file per operation, behind the parts that they share and the table of a set of gates.
//!
//! Domains with equal sets share their scripts. A server keeps those of old sets until it is restarted, about 300 kB for each
//! set that it has ever seen, as text alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use redis::Script;

/// A script, ready to be named by its hash.
#[derive(Debug, Default)]
pub(super) struct Operation {
    pub(super) code: String,
    pub(super) hash: String,
}

/// The scripts of a set.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    pub(super) admit: Operation,
    pub(super) settle: Operation,
    pub(super) renew: Operation,
    pub(super) cancel_wait: Operation,
    pub(super) expire: Operation,
    pub(super) operate: Operation,
}

const SHARED: &str = concat!(
    include_str!("../../lua/prelude.lua"),
    include_str!("../../lua/rates.lua"),
    include_str!("../../lua/holds.lua"),
    include_str!("../../lua/line.lua"),
    include_str!("../../lua/leases.lua"),
);

impl Scripts {
    fn new(table: &str) -> Self {
        let make = |operation: &str| {
            let code = format!("local C = {table}\n{SHARED}{operation}");
            let hash = Script::new(&code).get_hash().to_owned();
            Operation { code, hash }
        };
        Self {
            admit: make(include_str!("../../lua/admit.lua")),
            settle: make(include_str!("../../lua/settle.lua")),
            renew: make(include_str!("../../lua/renew.lua")),
            cancel_wait: make(include_str!("../../lua/cancel_wait.lua")),
            expire: make(include_str!("../../lua/expire.lua")),
            operate: make(include_str!("../../lua/operate.lua")),
        }
    }
}

/// Scripts by the table of their set.
#[derive(Debug, Default)]
pub(super) struct Library(Mutex<HashMap<String, Arc<Scripts>>>);

/// Most sets whose scripts are shared between domains; beyond it they are made anew.
const SHARED_SETS: usize = 200;

impl Library {
    pub(super) fn of(&self, table: &str) -> Arc<Scripts> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.get(table) {
            return there.clone();
        }
        if known.len() >= SHARED_SETS {
            known.clear();
        }
        let new = Arc::new(Scripts::new(table));
        known.insert(table.to_owned(), new.clone());
        new
    }
}
