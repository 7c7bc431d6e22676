//! Bounds on everything that comes from outside, with the reason for each. The one place where they are written.

/// Longest name of a queue, kind, tenant, group, connector or worker.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest unique key; long enough for a composed key, short enough for an index.
pub const MAX_UNIQUE_KEY_BYTES: usize = 512;
/// Largest payload. Larger things belong in a blob store, with their key in the payload.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Deepest nesting of a payload; parsers of other languages stop near here.
pub const MAX_PAYLOAD_DEPTH: usize = 64;
/// Largest result kept with a completed job.
pub const MAX_RESULT_BYTES: usize = 1 << 18;
/// Most jobs in one enqueue: one commit stays short.
pub const MAX_ENQUEUE_BATCH: usize = 10_000;
/// Most jobs that one job can wait for.
pub const MAX_DEPENDENCIES: usize = 10_000;
/// Most jobs that can wait for one job: all of them are released in the commit that completes it.
pub const MAX_DEPENDENTS: u32 = 10_000;
/// Edges over which the end of jobs is told in one commit, but for those of the last job. What is left follows in the next ones.
pub const TELL_BATCH: usize = 10_000;
/// Most dependencies in one enqueue: one commit stays short.
pub const MAX_ENQUEUE_EDGES: usize = 100_000;
/// Most jobs that a cascade cancels: one commit stays short.
pub const MAX_CASCADE: usize = 10_000;
/// Most dependencies shown at a time.
pub const MAX_DEPENDENCY_PAGE: usize = 1_000;
/// Bytes of results after which a page of dependencies ends.
pub const DEPENDENCY_PAGE_BYTES: usize = 4 << 20;
/// Most jobs in one claim, and so in one lease.
pub const MAX_CLAIM_BATCH: usize = 2_000;
/// Furthest a job can be put off: ten years.
pub const MAX_DELAY_MS: i64 = 3_653 * 24 * 3_600_000;
/// Longest timeout of one attempt: seven days.
pub const MAX_TIMEOUT_MS: i64 = 7 * 24 * 3_600_000;
/// Timeout of one attempt where neither the job nor its kind names one.
pub const DEFAULT_TIMEOUT_MS: i64 = 30_000;
/// Most attempts that a policy can ask for.
pub const MAX_ATTEMPTS: u32 = 100;
/// Error entries kept with a job; the oldest go first.
pub const MAX_ERRORS_KEPT: usize = 20;
/// Longest error message kept.
pub const MAX_ERROR_BYTES: usize = 4_096;
/// Log lines kept with a job; the oldest go first.
pub const MAX_LOG_LINES: usize = 100;
/// Longest log line, progress note, park reason or operator's note.
pub const MAX_NOTE_BYTES: usize = 1_024;
/// Snoozes of one job before it is dead; a guard against a handler that never decides.
pub const MAX_SNOOZES: u32 = 10_000;
/// Jobs promoted from `scheduled` to `ready` in one step, so that a claim stays short when a million come due at once.
pub const PROMOTE_BATCH: usize = 1_000;
/// Jobs taken from expired leases in one step, at least one lease: a claim stays short when many workers died at once.
pub const RESCUE_BATCH: usize = 5_000;
/// Shortest and longest lease.
pub const LEASE_MS: std::ops::RangeInclusive<i64> = 1_000..=3_600_000;
/// Lease time where the worker names none.
pub const DEFAULT_LEASE_MS: i64 = 30_000;
/// Lone stalls after which a job is dead.
pub const MAX_LONE_STALLS: u32 = 3;
/// Most jobs one search page returns.
pub const MAX_PAGE: usize = 1_000;
/// Rows one search page looks at before it hands back a cursor to go on from.
pub const MAX_SEARCH_SCAN: usize = 200_000;
/// Jobs kept per queue after they completed or were cancelled.
pub const DEFAULT_RETENTION_COUNT: u64 = 1_000_000;
/// How long completed and cancelled jobs are kept.
pub const DEFAULT_RETENTION_AGE_MS: i64 = 24 * 3_600_000;
/// How long dead letters are kept (S1 §4.2); never pruned by count.
pub const DEAD_RETENTION_MS: i64 = 30 * 24 * 3_600_000;
/// Causes of dead letters that are shown one by one; the rest is counted together.
pub const MAX_CAUSES: usize = 200;
/// Time within which ageing brings a job of the lowest priority level with the highest.
pub const DEFAULT_MAX_WAIT_MS: i64 = 600_000;
/// Jobs taken from one lane before the claim looks at the next (measured: 32 keeps throughput and lets a lone
/// job come with the next claim).
pub const LANE_QUANTUM: u32 = 32;
/// Jobs after which a claim has looked at every lane, if there are not too many: with more than 31 lanes it takes fewer from each. The
/// largest claims are of two such rounds.
pub const LANE_ROUND: u64 = MAX_CLAIM_BATCH as u64 / 2;
/// Jobs taken from one lane at least, with however many others.
pub const LEAST_QUANTUM: u64 = 4;
/// Claims that ask for at least so many end with a whole round of all lanes, if no further one fits and that leaves out no more than an
/// eighth of what they ask for.
pub const WHOLE_ROUNDS_FROM: u32 = 512;
/// Longest server-named delay that is believed (J8).
pub const MAX_SERVER_DELAY_MS: i64 = 24 * 3_600_000;
/// Largest record of an API key or a worker's presence.
pub const MAX_RECORD_BYTES: usize = 1 << 16;
/// Most records that are read of one shelf.
pub const MAX_RECORDS: usize = 10_000;
/// Most schedules in one store: all of them are in the memory of every process.
pub const MAX_SCHEDULES: usize = 10_000;
/// Shortest interval of a schedule.
pub const MIN_INTERVAL_MS: i64 = 1_000;
/// Largest payload of a schedule: all of them are kept in memory.
pub const MAX_SCHEDULE_PAYLOAD_BYTES: usize = 1 << 16;
/// Most schedules that one can wait for.
pub const MAX_SCHEDULE_AFTER: usize = 20;
/// Most missed runs of one schedule that are made up for.
pub const MAX_MISSED_RUNS: u32 = 100;
/// How late a tick may be before it counts as missed, where the schedule names nothing else.
pub const DEFAULT_GRACE_MS: i64 = 60_000;
/// Longest grace: a day later it is another day's run.
pub const MAX_GRACE_MS: i64 = 24 * 3_600_000;
/// Longest jitter.
pub const MAX_JITTER_MS: i64 = 24 * 3_600_000;
/// Ticks of one schedule that are looked at in one step; earlier ones are skipped as one.
pub const TICKS_LOOKED_AT: usize = 2_000;
/// Most ticks of one schedule that wait for an earlier run or another schedule.
pub const MAX_WAITING_TICKS: usize = 100;
/// Most runs of one schedule that are not finished.
pub const MAX_OPEN_RUNS: usize = 100;
/// Ticks kept in the ledger of one schedule; the oldest go first.
pub const MAX_TICKS_KEPT: u64 = 1_000;
/// Schedules looked at in one step, so that a commit stays short when many are due at once.
pub const FIRE_BATCH: usize = 1_000;
/// Most dates of one backfill: ten years.
pub const MAX_BACKFILL_DATES: usize = 3_660;
/// Time between two jobs of a backfill, where it is not named (S1 §1.3).
pub const DEFAULT_STAGGER_MS: i64 = 5_000;
/// Longest time between two jobs of a backfill.
pub const MAX_STAGGER_MS: i64 = 24 * 3_600_000;
/// How long a date that was filled is not filled again under the same label.
pub const BACKFILL_PERIOD_MS: i64 = 30 * 24 * 3_600_000;
/// Largest document of a registry, and largest snapshot of one that history keeps.
pub const MAX_REGISTRY_BYTES: usize = 1 << 20;
/// Mistakes of a document that are named; the rest is counted.
pub const MAX_REGISTRY_PROBLEMS: usize = 100;
/// Versions of the registry that history keeps; the oldest go first. A thousand documents of a megabyte would be too many.
pub const MAX_REGISTRY_VERSIONS: usize = 100;
/// Refused documents that history remembers, without their text: a file that is wrong all day must not push out what worked.
pub const MAX_REGISTRY_REFUSALS: usize = 50;
/// Differences that a version names; the rest is counted.
pub const MAX_REGISTRY_CHANGES: usize = 500;
/// Entries that a document left alone and that are named; the rest is counted.
pub const MAX_REGISTRY_LEFT: usize = 100;
/// Retry policies with a name of their own.
pub const MAX_POLICIES: usize = 200;
/// Event names that a kind subscribes to, alert names it has, and codes it classifies.
pub const MAX_KIND_LIST: usize = 64;
/// Kinds that one event enqueues: one commit stays short.
pub const MAX_SUBSCRIBERS: usize = 1_000;
/// Most finished jobs that a kind's own retention keeps: their numbers are held in memory.
pub const MAX_KIND_RETENTION: u64 = 100_000;
/// Largest schema of a payload, as JSON text.
pub const MAX_SCHEMA_BYTES: usize = 1 << 16;
/// Most parts of a schema, and how deep they are nested.
pub const MAX_SCHEMA_NODES: usize = 2_000;
/// Deepest nesting of a schema.
pub const MAX_SCHEMA_DEPTH: usize = 32;
/// Steps that checking one payload may take: alternatives inside alternatives must not hold up a store.
pub const MAX_SCHEMA_STEPS: u32 = 1_000_000;
/// Misfits of a payload that are named.
pub const MAX_MISFITS: usize = 8;
/// Kinds that begin with this are the program's own.
pub const RESERVED_KINDS: &str = "tidegate.";
/// Queues that a worker names when it announces itself; it may serve more.
pub const MAX_QUEUES_SHOWN: usize = 100;
