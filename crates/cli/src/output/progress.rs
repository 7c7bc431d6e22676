//! Progress of bulk work: a bar with rate and time left on a terminal, nothing elsewhere. Ctrl-C stops between two
//! steps, never inside one.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tidegate_core::why::grouped;
use tokio::task::JoinHandle;

use super::Output;

/// Bulk work under way.
#[derive(Debug)]
pub(crate) struct Bulk {
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    listener: JoinHandle<()>,
}

impl Bulk {
    /// Starts a bar of `total` steps and listens for Ctrl-C.
    pub(crate) fn start(output: &Output, what: &'static str, total: u64) -> Self {
        let visible = io::stderr().is_terminal() && !output.json;
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what);
        let template = "{msg} {wide_bar} {human_pos}/{human_len} · {rate} · {eta} left";
        // The template is a constant; a plain bar would still do.
        bar.set_style(
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    // Writing to the bar's buffer cannot fail.
                    let _ = write!(out, "{}/s", grouped(state.per_sec() as u64));
                })
                .progress_chars("█▉▊▋▌▍▎▏ "),
        );
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = interrupted.clone();
        let listener = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                flag.store(true, Ordering::Relaxed);
            }
        });
        Self { bar, interrupted, listener }
    }

    /// `n` more are done.
    pub(crate) fn add(&self, n: u64) {
        self.bar.inc(n);
    }

    /// So many of so many are done.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// As if Ctrl-C had been pressed.
    #[cfg(test)]
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        self.listener.abort();
    }
}
