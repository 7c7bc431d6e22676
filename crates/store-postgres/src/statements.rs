//! Every statement by name. Their text is in `sql/`, one file each, written for the schema `tidegate`; another schema
//! is put in its place when a connection prepares them.

use tidegate_pg::Schema;

/// Declares the statements that connections prepare.
macro_rules! statements {
    ($($name:ident = $path:literal,)*) => {
        /// A prepared statement.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Sql { $($name,)* }

        impl Sql {
            /// All of them, in order of their numbers.
            pub(crate) const ALL: &[(Self, &'static str, &'static str)] = &[$((
                Self::$name,
                $path,
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql")),
            ),)*];
        }
    };
}

statements! {
    HeadLock = "head/lock",
    HeadAlive = "head/alive",
    HeadRevive = "head/revive",
    HeadClock = "head/clock",
    HeadFree = "head/free",
    LogAfter = "log/after",
    LogNewest = "log/newest",
    LogLast = "log/last",
    LogFirst = "log/first",
    LogAppend = "log/append",
    LogPrune = "log/prune",
    LogFlush = "log/flush",
    LogNotify = "log/notify",
    JobsInsert = "jobs/insert",
    JobsCopy = "jobs/copy",
    JobsGet = "jobs/get",
    JobsHead = "jobs/head",
    JobsFind = "jobs/find",
    JobsDelete = "jobs/delete",
    JobsTenants = "jobs/tenants",
    StatesGet = "states/get",
    StatesPut = "states/put",
    StatesDelete = "states/delete",
    DoneInsert = "done/insert",
    DoneCopy = "done/copy",
    DoneGet = "done/get",
    DonePutLetters = "done/put_letters",
    DoneDelete = "done/delete",
    DoneTakeBack = "done/take_back",
    DoneOldestDead = "done/oldest_dead",
    FinishedAdd = "finished/add",
    FinishedOldest = "finished/oldest",
    FinishedFind = "finished/find",
    FinishedPut = "finished/put",
    FinishedDelete = "finished/delete",
    DelayedInsert = "delayed/insert",
    DelayedDelete = "delayed/delete",
    DelayedDue = "delayed/due",
    DelayedNext = "delayed/next",
    LeasesInsert = "leases/insert",
    LeasesExtend = "leases/extend",
    LeasesDelete = "leases/delete",
    LeasesAll = "leases/all",
    UniquesGet = "uniques/get",
    UniquesPut = "uniques/put",
    UniquesDelete = "uniques/delete",
    UniquesExpire = "uniques/expire",
    EdgesInsert = "edges/insert",
    EdgesDelete = "edges/delete",
    EdgesChildren = "edges/children",
    EdgesParents = "edges/parents",
    EdgesCounts = "edges/counts",
    EdgesUnfinished = "edges/unfinished",
    EdgesCount = "edges/count",
    BlockedGet = "blocked/get",
    BlockedPut = "blocked/put",
    BlockedDelete = "blocked/delete",
    KeptGet = "kept/get",
    KeptPut = "kept/put",
    KeptSweep = "kept/sweep",
    KeptForget = "kept/forget",
    KeptForgetUnowned = "kept/forget_unowned",
    UntoldPut = "untold/put",
    UntoldDelete = "untold/delete",
    UntoldAll = "untold/all",
    QueuesPut = "queues/put",
    QueuesAll = "queues/all",
    KindsPut = "kinds/put",
    KindsAll = "kinds/all",
    TenantsPut = "tenants/put",
    TenantsDelete = "tenants/delete",
    TenantsAll = "tenants/all",
    LanesPut = "lanes/put",
    LanesDelete = "lanes/delete",
    LanesAll = "lanes/all",
    ParksPut = "parks/put",
    ParksDelete = "parks/delete",
    ParksAll = "parks/all",
    StartsAdd = "starts/add",
    StartsDrop = "starts/drop",
    StartsAll = "starts/all",
    SchedulesAll = "schedules/all",
    SchedulesPut = "schedules/put",
    SchedulesPutStates = "schedules/put_states",
    SchedulesDelete = "schedules/delete",
    TicksPut = "ticks/put",
    TicksBefore = "ticks/before",
    TicksDelete = "ticks/delete",
    PoliciesPut = "policies/put",
    PoliciesGet = "policies/get",
    VersionsAdd = "versions/add",
    VersionsForget = "versions/forget",
    VersionsNewest = "versions/newest",
    VersionsGet = "versions/get",
    VersionsLast = "versions/last",
    RoundsGet = "rounds/get",
    RoundsPut = "rounds/put",
    LettersPending = "letters/pending",
    InboxLook = "inbox/look",
    InboxTake = "inbox/take",
    SearchNewest = "search/newest",
    SearchFinished = "search/finished",
    SearchScheduled = "search/scheduled",
    SearchRunning = "search/running",
    SearchBlocked = "search/blocked",
    SearchWindow = "search/window",
    SearchListed = "search/listed",
    LettersCauses = "letters/causes",
    RecordsPut = "records/put",
    RecordsExpire = "records/expire",
    RecordsAll = "records/all",
    RecordsDelete = "records/delete",
    HealthLook = "health/look",
}

/// The walk over all jobs at a restart. A `COPY` cannot be prepared.
pub(crate) const SCAN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/jobs/scan.sql"));

/// What the writer's connection prepares.
pub(crate) const WRITER: &[Sql] = {
    const fn all<const N: usize>() -> [Sql; N] {
        let mut list = [Sql::HeadLock; N];
        let mut i = 0;
        while i < N {
            list[i] = Sql::ALL[i].0;
            i += 1;
        }
        list
    }
    // Everything before the searches.
    &all::<{ Sql::SearchNewest as usize }>()
};

/// What a reader's connection prepares.
pub(crate) const READER: &[Sql] = &[
    Sql::SearchNewest,
    Sql::SearchFinished,
    Sql::SearchScheduled,
    Sql::SearchRunning,
    Sql::SearchBlocked,
    Sql::SearchWindow,
    Sql::SearchListed,
    Sql::JobsFind,
    Sql::JobsGet,
    Sql::StatesGet,
    Sql::DoneGet,
    Sql::LettersCauses,
    Sql::RecordsPut,
    Sql::RecordsExpire,
    Sql::RecordsAll,
    Sql::RecordsDelete,
    Sql::HealthLook,
];

/// Replaces the schema `tidegate` and the schema of its functions in a statement.
pub(crate) fn in_schema(text: &str, schema: &Schema) -> String {
    if schema.is_default() {
        return text.to_owned();
    }
    text.replace("tidegate_v1.", &format!("\"{}_v1\".", schema.name()))
        .replace("tidegate.", &format!("{}.", schema.quoted()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_says_what_it_does_and_names_its_schema() {
        for (sql, path, text) in Sql::ALL {
            assert!(text.starts_with("-- "), "{path}: {sql:?} has no contract");
            let tables = !matches!(*path, "log/notify" | "head/clock");
            assert_eq!(text.contains("tidegate."), tables, "{path} names its schema if it has tables");
        }
        assert!(Sql::ALL.iter().enumerate().all(|(i, (sql, _, _))| *sql as usize == i));
    }

    #[test]
    fn another_schema_takes_the_place_of_the_usual_one() {
        let schema = Schema::new("Own").unwrap();
        let text = in_schema("SELECT * FROM tidegate.jobs, tidegate_v1.enqueue()", &schema);
        assert_eq!(text, "SELECT * FROM \"Own\".jobs, \"Own_v1\".enqueue()");
    }
}
