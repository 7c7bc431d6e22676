//! Progress of bulk work: a bar with rate and time left on a terminal, nothing elsewhere. Ctrl-C stops between two
//! steps, never inside one.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::{self, IsTerminal};
use tidegate_core::why::grouped;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Output;

/// Bulk work under way.
#[derive(Debug)]
pub(crate) struct Bulk {
    bar: ProgressBar,
    interrupted: watch::Sender<bool>,
    listener: Option<JoinHandle<()>>,
}

impl Bulk {
    /// Starts a bar of `total` steps (0: nobody knows) and listens for Ctrl-C.
    pub(crate) fn start(output: &Output, what: &'static str, total: u64) -> Self {
        let mut bulk = Self::looking(output, what, total);
        // From here on Ctrl-C no longer ends the program: a task that has not begun would not have listened yet.
        if let Ok(mut ctrl_c) = signal(SignalKind::interrupt()) {
            let flag = bulk.interrupted.clone();
            bulk.listener = Some(tokio::spawn(async move {
                ctrl_c.recv().await;
                flag.send_replace(true);
            }));
        }
        bulk
    }

    /// The same for work that changes nothing: Ctrl-C simply ends the program, now and at a question that follows.
    pub(crate) fn looking(output: &Output, what: &'static str, total: u64) -> Self {
        let visible = io::stderr().is_terminal() && !output.json;
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what);
        let template = match total {
            0 => "{msg} {human_pos} · {rate}",
            _ => "{msg} {wide_bar} {human_pos}/{human_len} · {rate} · {eta} left",
        };
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
        Self { bar, interrupted: watch::Sender::new(false), listener: None }
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
        self.interrupted.send_replace(true);
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn interrupted(&self) -> bool {
        *self.interrupted.borrow()
    }

    /// Waits for Ctrl-C.
    pub(crate) async fn interruption(&self) {
        // The sender is in here, so it cannot be gone.
        let _ = self.interrupted.subscribe().wait_for(|pressed| *pressed).await;
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}
