//! Every error code that a user can meet, with its sentence and its hint. `tidegate explain`, the documentation and
//! the exit codes of the command line are all made from this table.

use std::fmt;

use serde::{Serialize, Serializer};

/// Whose failure it is, and with it the exit code of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A defect or an accident on our side: exit code 1.
    Ours,
    /// The request cannot be right: exit code 2.
    Usage,
    /// What was named does not exist: exit code 3.
    NotFound,
    /// The request is fine, the state does not allow it: exit code 4.
    State,
    /// Store or provider out of reach: exit code 5.
    Unreachable,
}

impl Fault {
    /// Exit code of the command line.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Ours => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::State => 4,
            Self::Unreachable => 5,
        }
    }
}

/// A stable error code.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code {
    /// `TG` and four digits.
    pub id: &'static str,
    /// Whose failure it is.
    pub fault: Fault,
    /// What it means, in a sentence.
    pub title: &'static str,
    /// What to do next.
    pub hint: &'static str,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.id)
    }
}

macro_rules! codes {
    ($($name:ident = $id:literal, $fault:ident, $title:literal, $hint:literal;)*) => {
        $(
            #[doc = concat!("`", $id, "`: ", $title, ".")]
            pub const $name: Code = Code { id: $id, fault: Fault::$fault, title: $title, hint: $hint };
        )*
        /// All codes, in order.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    INTERNAL = "TG1001", Ours, "something went wrong inside Tidegate",
        "run again with TIDEGATE_LOG=debug and report what it prints";
    CORRUPT = "TG1002", Ours, "the store holds something it should not",
        "stop the process, run `tidegate backup` and report it";
    INVALID_NAME = "TG2001", Usage, "a name is not acceptable",
        "use letters, digits and . _ - : @ + =, at most 128 of them, starting with a letter or a digit";
    UNKNOWN_QUEUE = "TG2002", NotFound, "the queue is not registered",
        "`tidegate queues ls` lists them; a worker's handlers register their queues, or use `tidegate queues set NAME`";
    UNKNOWN_KIND = "TG2003", NotFound, "the kind is not registered",
        "`tidegate kinds ls` lists them; a worker that handles the kind registers it, or use `tidegate kinds set NAME`";
    INVALID_PAYLOAD = "TG2004", Usage, "the payload is not acceptable",
        "a payload is one JSON value of at most 1 MiB, nested at most 64 deep; if its kind has a schema, `tidegate registry show KIND` prints it";
    INVALID_TIME = "TG2005", Usage, "a time or span is not acceptable",
        "write a span like 250ms, 30s, 5m or 1h 30m, up to ten years ahead";
    INVALID_BATCH = "TG2006", Usage, "the batch is not acceptable",
        "send between 1 and 10,000 jobs in one call, each with an id of its own";
    PAYLOAD_MISFIT = "TG2007", Usage, "the payload does not fit its kind",
        "`tidegate jobs show JOB` prints the payload; compare it with the handler's type";
    INVALID_SETTING = "TG2008", Usage, "a setting is not acceptable",
        "`tidegate queues set --help` lists the settings and their ranges";
    INVALID_REQUEST = "TG2009", Usage, "the request could not be read",
        "the message names what is not understood; `--help` of the command, or `/openapi.json` of the server, shows what is";
    DUPLICATE_ID = "TG2010", State, "a job with this id exists and is a different one",
        "leave the id out, or send exactly the same job again";
    NOT_A_BACKUP = "TG2011", Usage, "the file is not a Tidegate backup, or it is damaged",
        "`tidegate backup FILE` makes one";
    CONTENT_TYPE = "TG2012", Usage, "the content type is not understood",
        "send JSON with the header `content-type: application/json`";
    TOO_LARGE = "TG2013", Usage, "the request is too large",
        "send fewer or smaller jobs in one request; larger things belong in a blob store, with their key in the payload";
    WRONG_METHOD = "TG2014", Usage, "this path does not know this method",
        "the header `allow` of the answer lists the methods it knows; `/openapi.json` describes every route";
    NO_KEY = "TG2015", Usage, "the request carries no valid key",
        "set TIDEGATE_KEY, or send the header `authorization: Bearer tg_…`; `tidegate keys create` makes a key, `tidegate keys ls` shows which were revoked";
    NOT_ALLOWED = "TG2016", Usage, "the key does not allow this",
        "use a key with a role and a tenant that allow it; `tidegate keys ls` shows them";
    FOREIGN_ORIGIN = "TG2017", Usage, "a server without keys answers only programs of its own machine",
        "ask it by its loopback address and not from a web page of another origin, or create a key with `tidegate keys create`";
    OPEN_BIND = "TG2018", Usage, "a server without keys is not opened to the network",
        "create a key first with `tidegate keys create --role admin`, or bind to 127.0.0.1";
    INVALID_TLS = "TG2019", Usage, "the certificate or its key could not be read",
        "name PEM files: the chain with the server's certificate first, and its private key";
    INVALID_STORE_URL = "TG2020", Usage, "the address of the store is not acceptable",
        "write a directory, sqlite:PATH, postgres://USER@HOST/DATABASE, http://HOST:7433 or https://HOST";
    INVALID_GATES_URL = "TG2021", Usage, "the address of the gates' backend, or an option in it, is not acceptable",
        "write redis://HOST:6379, redis://HOST:7000,HOST:7000 for a cluster, or postgres://USER@HOST/DATABASE";
    NOT_RUNNABLE = "TG2022", Usage, "the command of a worker cannot be run",
        "run the command by hand, in the worker's directory and as its user, and start the worker again; no job was spent on it";
    INVALID_SCHEDULE = "TG2030", Usage, "the settings of a schedule are not acceptable",
        "`tidegate schedules put --help` has examples; `tidegate schedules next NAME` shows when a schedule runs";
    CYCLE = "TG2040", Usage, "jobs would wait for each other in a circle",
        "leave out one of the dependencies that the message names";
    INVALID_REGISTRY = "TG2050", Usage, "the registry's document is not acceptable; nothing was changed",
        "`tidegate registry validate FILE` names every mistake with its place; docs/guides/registry.md shows what can be written";
    JOB_NOT_FOUND = "TG3001", NotFound, "there is no such job",
        "it may have been pruned; `tidegate jobs ls` finds jobs by state, tenant, kind or text";
    PARK_NOT_FOUND = "TG3002", NotFound, "there is no such park or pause",
        "`tidegate parks ls` shows what is paused or parked, and by whom";
    NO_DATA = "TG3003", NotFound, "there is no data where it was looked for",
        "name the directory with --dir or TIDEGATE_DATA; `tidegate queues set NAME` starts a new one";
    ROUTE_NOT_FOUND = "TG3004", NotFound, "there is nothing at this path",
        "`/openapi.json` describes every route; they begin with /v1";
    KEY_NOT_FOUND = "TG3005", NotFound, "there is no such key",
        "`tidegate keys ls` lists them by id";
    WORKER_NOT_FOUND = "TG3006", NotFound, "there is no such worker",
        "`tidegate workers ls` lists those that are alive";
    CODE_NOT_FOUND = "TG3007", NotFound, "there is no such error code",
        "`tidegate explain` lists them all";
    GATE_NOT_FOUND = "TG3008", NotFound, "there is no such gate or gate domain",
        "`tidegate gates ls` lists the domains that have gates; they are set up in a file, `serve --gates-file gates.toml`: docs/guides/gates.md";
    SILENCE_NOT_FOUND = "TG3009", NotFound, "there is no such silence",
        "`tidegate alerts silences` lists those that have not ended";
    CHANNEL_NOT_FOUND = "TG3010", NotFound, "there is no such channel",
        "channels are set up in the alerts file: docs/guides/observing.md";
    SCHEDULE_NOT_FOUND = "TG3020", NotFound, "there is no such schedule",
        "`tidegate schedules ls` lists them; `tidegate schedules put NAME --kind KIND` makes one";
    DEPENDENCY_NOT_FOUND = "TG3021", NotFound, "there is no such job to wait for",
        "enqueue it first or in the same call; a finished job counts until its retention ends, and a tenant's job can only wait for that tenant's";
    UNKNOWN_EVENT = "TG3030", NotFound, "no kind subscribes to this event",
        "`tidegate registry show` prints the kinds with their events (`on`)";
    VERSION_NOT_FOUND = "TG3031", NotFound, "there is no such version of the registry",
        "`tidegate registry history` lists those that are kept; a refused document has nothing to go back to";
    STALE_LEASE = "TG4001", State, "the lease was lost, the write is refused",
        "another worker has the job now; let this run end without effects";
    WRONG_STATE = "TG4002", State, "the job's state does not allow this",
        "`tidegate why JOB` says where it stands";
    QUEUE_FULL = "TG4003", State, "the queue holds as many ready jobs as it may",
        "wait and try again, or raise `max_ready` with `tidegate queues set`";
    HANDLERS_MISSING = "TG4004", State, "handlers and registered kinds do not match",
        "give every kind of the worker's queues exactly one handler";
    DATA_EXISTS = "TG4005", State, "there is data already, and it is not overwritten",
        "choose another place, or add --force where the command knows it";
    INTERRUPTED = "TG4006", State, "it was stopped before it was done; what was done stays done",
        "run the same command again to go on";
    TOO_MANY_REQUESTS = "TG4007", State, "more requests than allowed",
        "wait as long as the header `retry-after` says; the server's setting `requests_per_second` is the bound";
    TOO_MANY_WAITING = "TG4008", State, "as many requests wait at the server as may",
        "wait a moment and try again, or raise the server's bounds on long polls and event streams";
    SERVER_BUSY = "TG4009", State, "the server is busy with other requests",
        "wait as long as the header `retry-after` says and try again, or send smaller bodies";
    GATES_IN_USE = "TG4010", State, "the gates are in use in a way that the new settings cannot take over",
        "wait until no permits are held, or clear the domain's gates first";
    WRONG_SCHEDULE_STATE = "TG4020", State, "the schedule's state does not allow this",
        "`tidegate schedules show NAME` says where it stands: runs that are not finished, and whom it waits for (`schedules put NAME --after none` ends that)";
    SCHEDULE_MANAGED = "TG4021", State, "the schedule is described by the registry's document",
        "change the document and apply it with `tidegate registry apply FILE`; `schedules pause`, `resume` and `run` work on it as on any other";
    KIND_MANAGED = "TG4030", State, "the kind is described by the registry's document",
        "change the document and apply it with `tidegate registry apply FILE`";
    STORE_OWNED = "TG5001", Unreachable, "another process owns this store",
        "stop that process first, or ask inside it (`tide.why(id)`, `tide.store().queues(now)`); to share the directory among programs, let `tidegate serve` own it and give them `--store http://127.0.0.1:7433`; `tidegate backup` works beside it";
    STORE_FULL = "TG5002", Unreachable, "the disk is full; nothing was stored",
        "free some space; Tidegate goes on by itself";
    STORE_FAILED = "TG5003", Unreachable, "the store did not answer",
        "check the disk and the data directory's rights, then try again";
    STORE_CLOSED = "TG5004", Unreachable, "the store is closed",
        "open it again";
    STORE_NEWER = "TG5005", Unreachable, "the store was written by a newer version",
        "upgrade this program, or restore a backup made by this version";
    SERVER_STOPPING = "TG5006", Unreachable, "the server is about to stop",
        "try again; another server answers, or this one when it is back";
    BIND_FAILED = "TG5007", Unreachable, "the address cannot be listened on",
        "another program may use the port: choose another one, or stop that program";
    SERVER_UNREACHABLE = "TG5008", Unreachable, "the server did not answer",
        "check its address and that `tidegate serve` runs there; what is safe to send again is sent again by itself";
    SERVER_MISMATCH = "TG5009", Unreachable, "what answers is no Tidegate server of a version that this program understands",
        "check the address; upgrade the older one of the two";
    STORE_UNREACHABLE = "TG5010", Unreachable, "the database cannot be reached",
        "check that it runs and that the URL, the password and the network are right; Tidegate reconnects by itself";
    GATES_UNREACHABLE = "TG5011", Unreachable, "the gates' backend did not answer",
        "check that it runs and that its address is right (rediss:// is for a server with TLS alone); processes that had reached it go on as each gate's setting `degraded` says";
    ENDPOINT_UNREACHABLE = "TG5012", Unreachable, "the endpoint that does the jobs cannot be reached",
        "start it, or correct --url; the jobs are as they were. Without --until-idle a worker waits for it";
}

/// Finds a code by its id.
pub fn find(id: &str) -> Option<Code> {
    ALL.iter().copied().find(|c| c.id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(ALL.windows(2).all(|w| w[0].id < w[1].id));
        assert_eq!(find("tg4001"), Some(STALE_LEASE));
    }
}
