//! The library of functions: one file per operation, behind the parts that they share. It is the same for all sets of gates; a
//! set is defined once per server, under a name made of its contents.
//!
//! A server keeps the library through restarts and passes it on to its replicas. Libraries of other versions stand beside it
//! under names of their own, about 60 kB each, until somebody deletes them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use tidegate_core::gates::hash_bytes;

/// What all operations share.
const SHARED: [&str; 7] = [
    include_str!("../../lua/prelude.lua"),
    include_str!("../../lua/rates.lua"),
    include_str!("../../lua/holds.lua"),
    include_str!("../../lua/line.lua"),
    include_str!("../../lua/leases.lua"),
    include_str!("../../lua/orders.lua"),
    include_str!("../../lua/quick.lua"),
];

const OPERATIONS: [&str; 7] = [
    include_str!("../../lua/define.lua"),
    include_str!("../../lua/admit.lua"),
    include_str!("../../lua/settle.lua"),
    include_str!("../../lua/renew.lua"),
    include_str!("../../lua/cancel_wait.lua"),
    include_str!("../../lua/expire.lua"),
    include_str!("../../lua/operate.lua"),
];

/// An operation, by the name of its function.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    Define,
    Admit,
    Settle,
    Renew,
    CancelWait,
    Expire,
    Operate,
}

/// The library, ready to be loaded.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) code: String,
    functions: [String; 7],
}

pub(super) static LIBRARY: LazyLock<Library> = LazyLock::new(Library::new);

impl Library {
    fn new() -> Self {
        let mut body = SHARED.concat();
        for operation in OPERATIONS {
            // Each in a scope of its own: what an operation calls itself is nobody else's business.
            let _ = write!(body, "do\n{operation}end\n");
        }
        let name = format!("tidegate_{:016x}", hash_bytes(body.as_bytes()));
        let code = format!("#!lua name={name}\nlocal LIBRARY = '{name}_'\n{body}");
        let function = |operation: &str| format!("{name}_{operation}");
        let names = ["define", "admit", "settle", "renew", "cancel_wait", "expire", "operate"];
        Self { code, functions: names.map(function) }
    }

    pub(super) fn function(&self, operation: Operation) -> &str {
        &self.functions[operation as usize]
    }
}
