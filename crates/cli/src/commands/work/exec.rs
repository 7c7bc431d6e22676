//! A command per job. Payload on standard input; the job in the environment; standard output is the result, standard
//! error the job's log; the exit code says what became of it.
//!
//! The command runs in a process group of its own. A cancelled job's group gets SIGTERM, and SIGKILL after the grace; one
//! whose time is up, or whose lease is lost, gets SIGKILL at once, because nothing may go on working for it. For the
//! same reason the grace ends with SIGKILL for what is left of the group, even if the command itself has ended.
//!
//! A command that cannot be run is no job's fault: a worker does not begin if it can see that, and ends if it comes to know.
//!
//! What opens the store is kept from the command unless it is passed on purpose: a handler that prints its environment
//! would write it into the job's log, for everybody who may read jobs.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::value::RawValue;
use tidegate::{Category, Context, Error, Failure, Outcome, StopReason, done, done_with};
use tidegate_core::{codes, limits};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};

use crate::error;

/// Time between two writes of log lines.
const LOG_EVERY: Duration = Duration::from_millis(500);
/// Time that output has to arrive after the command has ended: a child of it may hold the pipe open for ever.
const LAST_OUTPUT: Duration = Duration::from_millis(250);

/// Time between two looks at whether a group that was asked to stop is gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Variables that hold or lead to what opens the store: URLs with passwords, keys, and the file that has either.
const CREDENTIALS: [&str; 4] = ["TIDEGATE_KEY", "TIDEGATE_STORE", "TIDEGATE_DATA", "TIDEGATE_CONFIG"];

/// How a command ended so far: not yet, once as one that is not there, or otherwise.
const NOTHING: u8 = 0;
const NOT_FOUND: u8 = 1;
const RAN: u8 = 2;

/// What is run.
pub(super) struct Command {
    words: Vec<String>,
    /// What is said of it: not the rest of its line, which may hold secrets.
    shown: String,
    grace: Duration,
    pass_credentials: bool,
    /// How it ended so far.
    seen: AtomicU8,
}

impl Command {
    /// A line for the shell.
    pub(super) fn line(line: &str, grace_ms: i64, pass_credentials: bool) -> error::Result<Self> {
        if let Some(word) = plain_program(line) {
            there(word, in_path(word) || shell_knows(word))?;
        }
        let words = vec!["sh".into(), "-c".into(), line.to_owned()];
        Ok(Self::new(words, "the command".into(), grace_ms, pass_credentials))
    }

    /// A program and its arguments.
    pub(super) fn program(words: &[String], grace_ms: i64, pass_credentials: bool) -> error::Result<Self> {
        if let Some(word) = words.first() {
            there(word, in_path(word))?;
        }
        let shown = words.first().cloned().unwrap_or_default();
        Ok(Self::new(words.to_vec(), shown, grace_ms, pass_credentials))
    }

    fn new(words: Vec<String>, shown: String, grace_ms: i64, pass_credentials: bool) -> Self {
        let grace = Duration::from_millis(grace_ms.max(0) as u64);
        Self { words, shown, grace, pass_credentials, seen: AtomicU8::new(NOTHING) }
    }

    /// Runs the command for one job.
    pub(super) async fn run(&self, cx: &Context) -> Outcome {
        let mut child = self.spawn(cx)?;
        let group = Group::of(&child);
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::logic("NO_PIPE", "the command has no pipes"));
        };
        let mut log = Log::default();
        let mut result = Vec::new();
        let status = {
            let feed = feed(input, cx.payload().as_str());
            let streams = async {
                tokio::join!(feed, tail(output, &mut result), log.follow(errors, cx));
            };
            let mut streams = std::pin::pin!(streams);
            let ended = self.ended(&mut child, &group, cx);
            let mut ended = std::pin::pin!(ended);
            tokio::select! {
                biased;
                status = &mut ended => {
                    // What was written before the end is in the pipes already.
                    let _ = tokio::time::timeout(LAST_OUTPUT, &mut streams).await;
                    status
                }
                () = &mut streams => ended.await,
            }
        };
        group.forget();
        log.flush(cx).await;
        let status = status?;
        match status.code() {
            Some(code @ (126 | 127)) if !cx.is_cancelled() => {
                // The first one may ask for something of its own that is not there, and ends like any other: one job must not stop
                // every worker that takes it. Of a command that has run, it is always the job.
                let before = self.seen.fetch_max(NOT_FOUND, Ordering::Relaxed);
                if before == NOT_FOUND {
                    Err(self.unfit(&failed(code, &log.said())))
                } else {
                    outcome(status, &result, &log)
                }
            }
            Some(126 | 127) | None => outcome(status, &result, &log),
            Some(_) => {
                self.seen.store(RAN, Ordering::Relaxed);
                outcome(status, &result, &log)
            }
        }
    }

    fn unfit(&self, why: &str) -> Failure {
        Failure::unfit(Error::new(codes::NOT_RUNNABLE, format!("{} could not be run: {why}", self.shown)))
    }

    fn spawn(&self, cx: &Context) -> Result<Child, Failure> {
        let (program, args) =
            self.words.split_first().ok_or_else(|| Failure::config("NO_COMMAND", "no command"))?;
        let mut command = tokio::process::Command::new(program);
        if !self.pass_credentials {
            for name in CREDENTIALS {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .env("TIDEGATE_JOB_ID", cx.id().to_string())
            .env("TIDEGATE_ATTEMPT", cx.attempt().to_string())
            .env("TIDEGATE_QUEUE", cx.queue().as_str())
            .env("TIDEGATE_KIND", cx.kind().as_str())
            .env("TIDEGATE_SCHEDULE", cx.schedule().map_or("", |run| run.schedule.as_str()))
            .env("TIDEGATE_PLANNED", cx.schedule().map_or_else(String::new, |run| run.planned.to_string()))
            .env("TIDEGATE_TENANT", cx.tenant().map_or("", |t| t.as_str()))
            .env("TIDEGATE_GROUP", cx.group().as_str())
            .env_remove("TRACEPARENT")
            .envs(cx.traceparent().map(|context| ("TRACEPARENT", context)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => self.unfit(&e.to_string()),
            // Out of processes, memory or files: better later.
            _ => Failure::new(
                Category::ResourceUnavailable,
                "NOT_STARTED",
                format!("{program} could not be started: {e}"),
            ),
        })
    }

    /// Waits for the end, and brings it about if the job should stop. Nothing of a stopped job's group is left.
    async fn ended(&self, child: &mut Child, group: &Group, cx: &Context) -> Result<ExitStatus, Failure> {
        tokio::select! {
            status = child.wait() => if cx.stop_reason().is_none() {
                return Ok(status?);
            },
            () = cx.cancelled() => (),
        }
        let at_once = matches!(cx.stop_reason(), Some(StopReason::TimedOut | StopReason::LeaseLost));
        if at_once || !self.gave_way(child, group).await {
            group.signal(Signal::KILL);
        }
        Ok(child.wait().await?)
    }

    /// Asks the group to stop. Whether all of it did within the grace: the leader may be a shell that ends at once while
    /// the handler behind it still tidies up.
    async fn gave_way(&self, child: &mut Child, group: &Group) -> bool {
        group.signal(Signal::TERM);
        let all = async {
            // A failure shows again where the status is asked for.
            let _ = child.wait().await;
            group.gone().await;
        };
        tokio::time::timeout(self.grace, all).await.is_ok()
    }
}

/// The process group of a command. Killed when dropped, so that an aborted handler leaves nothing running.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may have ended by itself in this moment.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits until nothing is in it. Only children can be waited for, and its members need not be ours: so it looks.
    async fn gone(&self) {
        while self.0.is_some_and(|group| test_kill_process_group(group).is_ok()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The command has ended: its number may belong to somebody else soon.
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Writes the payload. A command need not read it.
async fn feed(mut input: ChildStdin, payload: &str) {
    let _ = input.write_all(payload.as_bytes()).await;
    let _ = input.shutdown().await;
}

/// Keeps the last part of what is written.
async fn tail(mut output: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = output.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..n]);
        if kept.len() > 2 * limits::MAX_RESULT_BYTES {
            kept.drain(..kept.len() - limits::MAX_RESULT_BYTES);
        }
    }
}

/// Lines of standard error on their way to the job.
#[derive(Default)]
struct Log {
    waiting: VecDeque<String>,
    /// The last lines, for the error's message.
    last: VecDeque<String>,
}

/// Lines among which the one is looked for that says what went wrong.
const LAST_LINES: usize = 20;

impl Log {
    /// What went wrong, to follow what it is about; empty if nothing was said.
    fn said(&self) -> String {
        telling(&self.last).map_or(String::new(), |line| format!(": {}", line.trim()))
    }

    async fn follow(&mut self, errors: impl AsyncRead + Unpin, cx: &Context) {
        let mut reader = BufReader::new(errors);
        let mut tick = tokio::time::interval(LOG_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut line = Vec::new();
        loop {
            tokio::select! {
                // Cancel-safe: what was read stays in `line`.
                read = read_line(&mut reader, &mut line) => match read {
                    Some(text) => self.add(&text),
                    None => return,
                },
                _ = tick.tick(), if !self.waiting.is_empty() => self.flush(cx).await,
            }
        }
    }

    fn add(&mut self, line: &str) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
        if self.waiting.len() == limits::MAX_LOG_LINES {
            self.waiting.pop_front();
        }
        self.waiting.push_back(line.to_owned());
    }

    /// Writes what waits. A store that refuses means that the lease is lost; the worker finds out by itself.
    async fn flush(&mut self, cx: &Context) {
        let lines = std::mem::take(&mut self.waiting);
        if !lines.is_empty()
            && let Err(error) = cx.log_lines(lines).await
        {
            tracing::debug!(job = %cx.id(), code = %error.code, "log lines were not kept: {error}");
        }
    }
}

/// The next line, cut to what a log line may be. `None` at the end.
async fn read_line(reader: &mut (impl AsyncBufReadExt + Unpin), line: &mut Vec<u8>) -> Option<String> {
    loop {
        let available = reader.fill_buf().await.ok()?;
        if available.is_empty() {
            return (!line.is_empty()).then(|| text(line));
        }
        let end = available.iter().position(|b| *b == b'\n');
        let used = end.map_or(available.len(), |n| n + 1);
        let room = limits::MAX_NOTE_BYTES.saturating_sub(line.len());
        line.extend_from_slice(&available[..used.min(room)]);
        reader.consume(used);
        if end.is_some() {
            return Some(text(line));
        }
    }
}

fn text(line: &mut Vec<u8>) -> String {
    String::from_utf8_lossy(&std::mem::take(line)).into_owned()
}

fn outcome(status: ExitStatus, output: &[u8], log: &Log) -> Outcome {
    let said = log.said();
    match (status.code(), status.signal()) {
        (Some(0), _) => result(output),
        (Some(code), _) => Err(Failure::new(meaning(code).0, format!("EXIT_{code}"), failed(code, &said))),
        (None, Some(signal)) => {
            Err(Failure::logic(format!("SIGNAL_{signal}"), format!("killed by signal {signal}{said}")))
        }
        (None, None) => Err(Failure::logic("NO_STATUS", format!("it ended without a status{said}"))),
    }
}

fn failed(code: i32, said: &str) -> String {
    let name = meaning(code).1.map_or(String::new(), |n| format!(" ({n})"));
    format!("exit code {code}{name}{said}")
}

/// The program that a line for the shell begins with, if it is written out: nothing that the shell would make something else of.
fn plain_program(line: &str) -> Option<&str> {
    let word = line.split_whitespace().next()?;
    word.chars().all(|c| c.is_alphanumeric() || "/._-+:@,".contains(c)).then_some(word)
}

/// Whether this program would be found, by its path or along `PATH`.
fn in_path(program: &str) -> bool {
    let runnable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return runnable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| runnable(&dir.join(program)))
}

/// Whether it is a word of the shell itself, like `exec` or `while`.
fn shell_knows(word: &str) -> bool {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "command -v -- \"$1\"", "sh", word]);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Of a path it says nothing but that it is one.
    !word.contains('/') && shell.status().is_ok_and(|status| status.success())
}

/// Refuses a program that is not there, before it costs a job anything.
fn there(program: &str, found: bool) -> error::Result<()> {
    if found {
        return Ok(());
    }
    let here = Path::new(program).is_file();
    let (why, hint) = match (here, program.contains('/')) {
        (true, true) => ("may not be executed", format!("`chmod +x {program}` allows it")),
        (true, false) => ("is not in PATH", format!("there is one in this directory: write ./{program}")),
        (false, true) => (
            "does not exist",
            "check the path; it counts from the directory that the worker is started in".into(),
        ),
        (false, false) => ("is not in PATH", "check the name, or write the whole path of the program".into()),
    };
    Err(error::Failure::new(codes::NOT_RUNNABLE, format!("{program} {why}")).hint(hint))
}

/// The line that says what went wrong: the first that calls itself an error, as compilers and this program write them; else the
/// last one that is neither advice nor the inside of a stack trace; else the last.
fn telling(lines: &VecDeque<String>) -> Option<&String> {
    // A word alone may begin any sentence: `error: …`, `error[TG2003]: …`, `note: …`.
    let begins = |line: &str, words: &[&str]| {
        let (word, rest) = line.split_at(line.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(line.len()));
        rest.starts_with([':', '[', '(']) && words.iter().any(|w| word.eq_ignore_ascii_case(w))
    };
    let is_error = |line: &&String| begins(line, &["error", "fatal"]);
    let is_aside = |line: &str| {
        line.starts_with(char::is_whitespace)
            || line.starts_with("Node.js v")
            || begins(line, &["note", "hint", "help", "more"])
    };
    let last = || lines.iter().rev().find(|line| !is_aside(line)).or(lines.back());
    lines.iter().find(is_error).or_else(last)
}

/// What an exit code means, by `sysexits.h` and what shells do. Anything else is up to the kind's retry policy.
fn meaning(code: i32) -> (Category, Option<&'static str>) {
    match code {
        64 => (Category::InvalidInput, Some("EX_USAGE")),
        65 => (Category::InvalidInput, Some("EX_DATAERR")),
        66 => (Category::InvalidInput, Some("EX_NOINPUT")),
        67 => (Category::InvalidInput, Some("EX_NOUSER")),
        68 => (Category::TransientNetwork, Some("EX_NOHOST")),
        69 => (Category::ResourceUnavailable, Some("EX_UNAVAILABLE")),
        71 => (Category::ResourceUnavailable, Some("EX_OSERR")),
        74 => (Category::ResourceUnavailable, Some("EX_IOERR")),
        75 => (Category::TransientServer, Some("EX_TEMPFAIL")),
        76 => (Category::TransientServer, Some("EX_PROTOCOL")),
        77 => (Category::PermanentPermission, Some("EX_NOPERM")),
        78 => (Category::PermanentConfig, Some("EX_CONFIG")),
        126 => (Category::PermanentConfig, Some("not executable")),
        127 => (Category::PermanentConfig, Some("command not found")),
        _ => (Category::LogicError, None),
    }
}

/// The result: the last line if it is JSON, otherwise everything that was written, as text.
fn result(output: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(output);
    let text = text.trim();
    if text.is_empty() {
        return done();
    }
    let last = text.lines().next_back().unwrap_or(text).trim();
    for candidate in [last, text] {
        if let Ok(json) = serde_json::from_str::<&RawValue>(candidate) {
            return done_with(json);
        }
    }
    let from = text.len().saturating_sub(limits::MAX_RESULT_BYTES / 2);
    let from = (from..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    done_with(&text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_have_the_meaning_of_sysexits() {
        assert_eq!(meaning(75), (Category::TransientServer, Some("EX_TEMPFAIL")));
        assert_eq!(meaning(1).0, Category::LogicError);
        assert_eq!(meaning(127).0, Category::PermanentConfig);
    }

    #[test]
    fn a_program_is_looked_for_only_if_the_shell_would_take_the_word_as_it_is() {
        for (line, program) in [
            ("./handler.sh --fast", Some("./handler.sh")),
            ("  cat", Some("cat")),
            ("NAME=x ./handler.sh", None),
            ("$HANDLER", None),
            ("~/handler.sh", None),
            ("\"my handler\"", None),
            ("(cat; true)", None),
            ("cat;true", None),
            ("", None),
        ] {
            assert_eq!(plain_program(line), program, "{line}");
        }
        assert!(in_path("cat") && !in_path("no-such-program") && !in_path("/tmp"));
        assert!(shell_knows("while") && shell_knows("exec") && !shell_knows("no-such-program"));
    }

    #[test]
    fn the_line_that_says_what_went_wrong_is_found() {
        let told = |text: &str| telling(&text.lines().map(str::to_owned).collect()).cloned();
        for (text, expected) in [
            ("fetching page 1\nfetching page 2\nconnection refused", "connection refused"),
            (
                "error[TG2003]: no such kind\n  hint: list them\n  more: tidegate explain TG2003",
                "error[TG2003]: no such kind",
            ),
            ("x.js:1\n  throw\nError: boom\n    at Object\nNode.js v22", "Error: boom"),
            ("Traceback (most recent call last):\n  File \"x\"\nValueError: no", "ValueError: no"),
            (
                "thread 'main' panicked at src/main.rs:2:5:\nno luck\nnote: run with RUST_BACKTRACE=1",
                "no luck",
            ),
            ("errors were found: 3", "errors were found: 3"),
            ("error count 0\nconnecting\nnode db-2 is unreachable", "node db-2 is unreachable"),
            ("  hint: only this", "  hint: only this"),
        ] {
            assert_eq!(told(text).as_deref(), Some(expected));
        }
        assert_eq!(told(""), None);
    }

    #[tokio::test]
    async fn long_lines_are_cut_and_the_rest_is_not_lost() {
        let long = format!("{}\nshort\nend", "x".repeat(100_000));
        let mut reader = BufReader::new(long.as_bytes());
        let (mut line, mut seen) = (vec![], vec![]);
        while let Some(text) = read_line(&mut reader, &mut line).await {
            seen.push(text);
        }
        assert_eq!(seen[0].len(), limits::MAX_NOTE_BYTES);
        assert_eq!(seen[1..], ["short\n", "end"]);
    }
}
