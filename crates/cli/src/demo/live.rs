//! The demo while it runs: a picture that redraws itself on a terminal, a line per second elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::Tidegate;
use tidegate_core::time::Timestamp;
use tidegate_core::why::grouped;
use tidegate_store::params::QueueView;
use tokio::sync::watch;

use super::ledger::{Ledger, read};
use super::scenario::{NOISY, PARKED, QUEUES, TENANTS};
use super::verify::wait_text;
use crate::error::Result;
use crate::output::{Output, Style, cut};

/// Time between two pictures.
const REDRAW: Duration = Duration::from_millis(150);
/// Time between two lines where there is no terminal.
const LINE: Duration = Duration::from_secs(1);
/// Widest picture: bars of a whole wide screen say no more.
const WIDEST: usize = 110;

/// Shows the run until told to stop.
pub(crate) async fn show(
    tide: Tidegate,
    ledger: Arc<Ledger>,
    output: Output,
    seconds: u64,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let terminal = io::stderr().is_terminal();
    if !terminal && output.json {
        return Ok(());
    }
    let started = Instant::now();
    let mut screen = Screen { lines: 0 };
    let mut ticker = tokio::time::interval(if terminal { REDRAW } else { LINE });
    let mut before = (Instant::now(), 0);
    let mut rate = 0.0;
    loop {
        let stopped = tokio::select! {
            _ = ticker.tick() => false,
            _ = stop.wait_for(|stopped| *stopped) => true,
        };
        let queues = tide.store().queues(tide.now()).await?;
        let done: u64 = queues.iter().map(|q| q.completed).sum();
        let passed = before.0.elapsed().as_secs_f64();
        if passed > 0.9 || (before.1 == 0 && passed > 0.2) {
            rate = (done - before.1) as f64 / passed;
            before = (Instant::now(), done);
        }
        let view = View { ledger: &ledger, queues: &queues, elapsed: started.elapsed(), seconds, rate };
        if terminal {
            let width = crate::output::stderr_width().unwrap_or(80).min(WIDEST);
            screen.draw(&view.picture(tide.now(), width, output.err_style))?;
            if stopped {
                screen.clear()?;
            }
        } else if !stopped {
            // Standard error may be closed; the demo goes on.
            let _ = writeln!(io::stderr(), "{}", view.line());
        }
        if stopped {
            return Ok(());
        }
    }
}

/// What was drawn last, to draw over it.
struct Screen {
    lines: usize,
}

impl Screen {
    fn draw(&mut self, picture: &str) -> io::Result<()> {
        let mut text = self.home();
        text += picture;
        self.lines = picture.lines().count();
        let mut err = io::stderr().lock();
        err.write_all(text.as_bytes())?;
        err.flush()
    }

    fn clear(&mut self) -> io::Result<()> {
        let text = self.home();
        self.lines = 0;
        io::stderr().write_all(text.as_bytes())
    }

    /// Back to the first line of the last picture, and nothing below it.
    fn home(&self) -> String {
        if self.lines == 0 { String::new() } else { format!("\u{1b}[{}A\r\u{1b}[J", self.lines) }
    }
}

struct View<'a> {
    ledger: &'a Ledger,
    queues: &'a [QueueView],
    elapsed: Duration,
    seconds: u64,
    rate: f64,
}

impl View<'_> {
    fn line(&self) -> String {
        let sum = |f: fn(&QueueView) -> u64| grouped(self.queues.iter().map(f).sum());
        format!(
            "{:>3} s  {} enqueued  {} completed  {} ready  {} scheduled  {} running  {} dead  {}/s",
            self.elapsed.as_secs(),
            grouped(self.ledger.enqueued()),
            sum(|q| q.completed),
            sum(|q| q.ready),
            sum(|q| q.scheduled),
            sum(|q| q.running),
            sum(|q| q.dead),
            grouped(self.rate as u64)
        )
    }

    fn picture(&self, now: Timestamp, width: usize, style: Style) -> String {
        let mut lines = vec![self.head(style)];
        lines.push(String::new());
        lines.push(style.bold(&format!(
            "{:<13}{:>8}{:>7}{:>9}{:>10}{:>6}  done",
            "QUEUE", "READY", "SCHED", "RUNNING", "COMPLETED", "DEAD"
        )));
        let queue = |name: &str| self.queues.iter().find(|q| q.name.as_str() == name);
        lines.extend(QUEUES.iter().filter_map(|name| queue(name)).map(|q| queue_line(q, width)));
        lines.push(String::new());
        lines.push(style.bold(&format!("{:<13}{:>8}{:>9}{:>9}  done", "TENANT", "JOBS", "DONE", "WAITS")));
        lines.extend((0..TENANTS.len()).map(|t| self.tenant_line(t, width, style)));
        lines.push(String::new());
        for (at, text) in self.ledger.events() {
            let ago = now.since(at).max(0) as f64 / 1_000.0;
            lines.push(style.dim(&cut(&format!("{ago:>5.1} s ago  {text}"), width.saturating_sub(1))));
        }
        lines.join("\n") + "\n"
    }

    fn head(&self, style: Style) -> String {
        let time = format!("{:.0} of {} s", self.elapsed.as_secs_f64(), self.seconds);
        format!(
            "{}  {time}   {} enqueued   {}/s",
            style.bold("tidegate demo"),
            grouped(self.ledger.enqueued()),
            grouped(self.rate as u64)
        )
    }

    fn tenant_line(&self, tenant: usize, width: usize, style: Style) -> String {
        let tally = &self.ledger.tenants[tenant];
        let (enqueued, done) = (read(&tally.enqueued), read(&tally.done));
        let waits = tally.waits.mean_ms().map_or_else(|| "–".into(), wait_text);
        let parked = tenant == PARKED && self.ledger.park_holds.load(std::sync::atomic::Ordering::Relaxed);
        let note = if parked {
            " parked"
        } else if tenant == NOISY {
            " noisy"
        } else {
            ""
        };
        let front =
            format!("{:<13}{:>8}{:>9}{:>9}  ", TENANTS[tenant].name, grouped(enqueued), grouped(done), waits);
        let room = width.saturating_sub(front.chars().count() + 8);
        let bar = bar(done as f64 / enqueued.max(1) as f64, room.min(60));
        let bar = if parked { style.yellow(&bar) } else { style.green(&bar) };
        format!("{front}{bar}{note}")
    }
}

fn queue_line(queue: &QueueView, width: usize) -> String {
    let limit = queue.settings.concurrency.map_or_else(|| "∞".into(), |n| n.to_string());
    let front = format!(
        "{:<13}{:>8}{:>7}{:>9}{:>10}{:>6}  ",
        queue.name,
        grouped(queue.ready),
        grouped(queue.scheduled),
        format!("{}/{limit}", queue.running),
        grouped(queue.completed),
        grouped(queue.dead)
    );
    let open = queue.ready + queue.scheduled + queue.running;
    let over = queue.completed + queue.dead + queue.cancelled;
    let room = width.saturating_sub(front.chars().count() + 2);
    format!("{front}{}", bar(over as f64 / (over + open).max(1) as f64, room.min(60)))
}

/// A bar of `width` columns, filled to `share`.
fn bar(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{}{}", "█".repeat(filled), "░".repeat(width - filled));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_with_the_share() {
        assert_eq!(bar(0.0, 4), "░░░░");
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(bar(7.0, 4), "████");
    }

    #[test]
    fn the_picture_fits_80_and_120_columns_and_24_lines() {
        let ledger = Ledger::default();
        for n in 0..9 {
            ledger.event(Timestamp(0), format!("event {n} {}", "with a long text ".repeat(12)));
        }
        let view = View {
            ledger: &ledger,
            queues: &[],
            elapsed: Duration::from_secs(7),
            seconds: 20,
            rate: 4_321.0,
        };
        for width in [80, 110] {
            let picture = view.picture(Timestamp(1_500), width, Style::plain());
            assert!(picture.lines().all(|l| l.chars().count() < width), "{picture}");
            assert!(picture.lines().count() + QUEUES.len() <= 24, "{picture}");
        }
    }
}
