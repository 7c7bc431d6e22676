//! Every statement by name. Their text is in `sql/`, one file each, written for the schema `tidegate`.

use tidegate_pg::Schema;

/// Declares the statements.
macro_rules! statements {
    ($($name:ident = $path:literal,)*) => {
        $(pub(super) const $name: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql"));)*

        #[cfg(test)]
        const ALL: &[(&str, &str)] = &[$(($path, $name),)*];
    };
}

statements! {
    SCHEMA_CREATE = "schema/create",
    SCHEMA_EXISTS = "schema/exists",
    PARTITIONS_LOCK = "partitions/lock",
    PARTITIONS_WRITE = "partitions/write",
    PARTITIONS_INSERT = "partitions/insert",
    PARTITIONS_REPLACE = "partitions/replace",
    PARTITIONS_ANY = "partitions/any",
    PARTITIONS_PAGE = "partitions/page",
    PARTITIONS_READ = "partitions/read",
    PARTITIONS_BUSY = "partitions/busy",
    PARTITIONS_DROP = "partitions/drop",
    PARTITIONS_USAGE = "partitions/usage",
    PARTITIONS_UNUSED = "partitions/unused",
    PARTITIONS_UNUSED_LOCK = "partitions/unused_lock",
    PARTITIONS_DELETE = "partitions/delete",
    DOMAINS_HEAD = "domains/head",
    DOMAINS_CLOCK = "domains/clock",
    DOMAINS_GET = "domains/get",
    DOMAINS_LOCK = "domains/lock",
    DOMAINS_INSERT = "domains/insert",
    DOMAINS_CONFIGURE = "domains/configure",
    DOMAINS_CHANGED = "domains/changed",
    DOMAINS_USED = "domains/used",
    SETS_GET = "sets/get",
    SETS_PRUNE = "sets/prune",
    SWITCHES_ALL = "switches/all",
    SWITCHES_PUT = "switches/put",
    SWITCHES_DELETE = "switches/delete",
    SWITCHES_RETAIN = "switches/retain",
    ORDERS_ALL = "orders/all",
    ORDERS_PUT = "orders/put",
    ORDERS_DELETE = "orders/delete",
    ORDERS_RETAIN = "orders/retain",
    CHANGES_ADD = "changes/add",
    CHANGES_PRUNE = "changes/prune",
    CHANGES_ALL = "changes/all",
    WAKE_NOTIFY = "wake/notify",
    SEEN_PUT = "seen/put",
    SEEN_PRUNE = "seen/prune",
    SEEN_ALL = "seen/all",
    SEEN_FOOTPRINT = "seen/footprint",
}

/// A statement with the schema in its place.
pub(super) fn in_schema(text: &str, schema: &Schema) -> String {
    text.replace("tidegate.", &format!("{}.", schema.quoted()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_says_what_it_does_and_names_its_schema() {
        for (path, text) in ALL {
            assert!(text.starts_with("-- "), "{path} has no contract");
            let tables = !matches!(*path, "schema/exists" | "domains/clock" | "wake/notify");
            assert_eq!(text.contains("tidegate."), tables, "{path} names its schema if it has tables");
        }
    }
}
