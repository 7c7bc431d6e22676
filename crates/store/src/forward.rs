//! Stores around other stores: one that fails when it is told to, or counts what it is asked.

/// What the traits speak of, in one place for [`forward!`](crate::forward).
#[doc(hidden)]
pub mod words {
    pub use async_trait::async_trait;
    pub use tidegate_core::ids::{JobId, KindName, QueueName, ScheduleName};
    pub use tidegate_core::job::{Park, ParkScope};
    pub use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
    pub use tidegate_core::schedule::TickEntry;
    pub use tidegate_core::time::Timestamp;

    pub use crate::params::{
        Advanced, Applied, Apply, CauseQuery, Causes, Erase, Erased, KindView, ProcessLetters,
        ProcessedLetters, PutSchedule, QueueView, Reauthorized, Record, Recover, Recovered, RefusedDocument,
        Resolve, ScheduleChange, ScheduleView, Shelf, TickQuery, Totals,
    };
}

/// Makes a store pass on whole traits, each operation as it came, to another store. Which one is decided for every call, and may be an
/// error. `Jobs` and `Store` are written by hand: that is where such a store differs from the one within.
///
/// ```
/// use tidegate_store::{Error, MemoryStore, Result, Versions};
///
/// struct Away(Option<MemoryStore>);
///
/// impl Away {
///     fn there(&self) -> Result<&MemoryStore> {
///         self.0.as_ref().ok_or_else(|| Error::new(tidegate_core::codes::STORE_UNREACHABLE, "it is away"))
///     }
/// }
///
/// tidegate_store::forward!(Registry, Versions, Letters for Away: |store| store.there()?);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert!(Away(Some(MemoryStore::new())).versions(1).await.is_ok());
/// assert!(Away(None).versions(1).await.is_err());
/// # }
/// ```
#[macro_export]
macro_rules! forward {
    ($($name:ident),+ for $store:ty: |$it:ident| $to:expr) => {
        $($crate::forward!(@$name $store, $it, $to);)+
    };
    (@Registry $store:ty, $it:ident, $to:expr) => {
        $crate::forward! { @all Registry for $store, $it, $to,
            put_queue(name: QueueName, settings: QueueSettings, now: Timestamp) -> ();
            settings() -> Vec<(QueueName, QueueSettings)>;
            ensure_queue(name: QueueName, now: Timestamp) -> ();
            put_kind(name: KindName, settings: KindSettings) -> ();
            queues(now: Timestamp) -> Vec<QueueView>;
            kinds() -> Vec<KindView>;
            park(park: Park, now: Timestamp) -> ();
            unpark(scope: ParkScope, by: String, now: Timestamp) -> bool;
            parks() -> Vec<Park>;
        }
    };
    (@Versions $store:ty, $it:ident, $to:expr) => {
        $crate::forward! { @all Versions for $store, $it, $to,
            apply(apply: Apply) -> Applied;
            refuse(refused: RefusedDocument, now: Timestamp) -> u64;
            registry() -> Document;
            versions(limit: usize) -> Vec<VersionInfo>;
            version(number: u64) -> Option<Version>;
        }
    };
    (@Letters $store:ty, $it:ident, $to:expr) => {
        $crate::forward! { @all Letters for $store, $it, $to,
            recover(letters: Vec<Recover>, now: Timestamp) -> Vec<Recovered>;
            resolve(resolve: Resolve) -> ();
            reauthorized(letters: Vec<Reauthorized>, by: String, now: Timestamp) -> Vec<Recovered>;
            process_letters(process: ProcessLetters) -> ProcessedLetters;
            causes(query: CauseQuery) -> Causes;
        }
    };
    (@Schedules $store:ty, $it:ident, $to:expr) => {
        $crate::forward! { @all Schedules for $store, $it, $to,
            put_schedule(put: PutSchedule) -> ScheduleChange;
            delete_schedule(name: ScheduleName, now: Timestamp) -> bool;
            pause_schedule(name: ScheduleName, by: String, now: Timestamp) -> ScheduleView;
            resume_schedule(name: ScheduleName, now: Timestamp) -> ScheduleView;
            run_schedule(name: ScheduleName, now: Timestamp) -> JobId;
            schedules() -> Vec<ScheduleView>;
            schedule(name: ScheduleName) -> Option<ScheduleView>;
            schedule_ticks(query: TickQuery) -> Vec<TickEntry>;
        }
    };
    (@Upkeep $store:ty, $it:ident, $to:expr) => {
        $crate::forward! { @all Upkeep for $store, $it, $to,
            advance(now: Timestamp) -> Advanced;
            prune(limit: usize, now: Timestamp) -> u64;
            erase(erase: Erase) -> Erased;
            totals() -> Totals;
        }
    };
    (@Records $store:ty, $it:ident, $to:expr) => {
        $crate::forward! { @all Records for $store, $it, $to,
            put_record(record: Record, now: Timestamp) -> ();
            records(shelf: Shelf, now: Timestamp) -> Vec<Record>;
            delete_record(shelf: Shelf, key: String) -> bool;
        }
    };
    (@all $of:ident for $store:ty, $it:ident, $to:expr,
        $($name:ident($($argument:ident: $is:ty),*) -> $answer:ty;)*) => {
        const _: () = {
            use $crate::forward::words::*;

            #[async_trait]
            impl $crate::$of for $store {
                $(async fn $name(&self $(, $argument: $is)*) -> $crate::Result<$answer> {
                    let $it = self;
                    $crate::$of::$name($to $(, $argument)*).await
                })*
            }
        };
    };
}
