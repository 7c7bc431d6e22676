//! `tidegate top`: queues, rates, workers and what is oldest, redrawn every second. One snapshot where there is no
//! terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal::{self, ClearType};
use crossterm::{cursor, execute, queue};
use serde_json::json;
use tidegate::presence::{self, Seen};
use tidegate_core::time::Timestamp;
use tidegate_core::why::grouped;
use tidegate_store::Store;
use tidegate_store::params::{QueueView, Totals};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{facts, queues, workers};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Output, clean, cut, width_of};
use crate::parse;

/// Time between two looks for a key.
const KEYS: Duration = Duration::from_millis(100);

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Time between two pictures
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    interval: String,
    /// One snapshot
    #[arg(long)]
    once: bool,
}

/// What is shown.
struct Picture {
    now: Timestamp,
    totals: Totals,
    queues: Vec<QueueView>,
    workers: Vec<Seen>,
    /// Jobs completed per second.
    per_second: f64,
}

impl Picture {
    async fn take(store: &dyn Store, before: Option<&(Instant, u64)>) -> Result<Self> {
        let now = parse::now();
        let queues = store.queues(now).await?;
        let totals = store.totals().await?;
        // A key that may not see workers still sees queues.
        let workers = presence::list(store, now).await.unwrap_or_default();
        let last_minute: u64 = queues.iter().map(|q| q.completed_last_minute).sum();
        let per_second = match before {
            Some((at, completed)) if totals.completed >= *completed => {
                (totals.completed - completed) as f64 / at.elapsed().as_secs_f64().max(0.001)
            }
            // The first look, or some were pruned meanwhile.
            _ => last_minute as f64 / 60.0,
        };
        Ok(Self { now, totals, queues, workers, per_second })
    }

    fn lines(&self, store: &str, output: &Output, height: usize) -> Vec<String> {
        let (style, width) = (output.style, output.width.unwrap_or(80));
        let clock = jiff::Timestamp::from_millisecond(self.now.0)
            .map_or_else(|_| String::new(), |t| t.strftime("%H:%M:%SZ").to_string());
        let title = cut(&format!("tidegate top  {}", clean(store)), width.saturating_sub(clock.len() + 2));
        let gap = width.saturating_sub(width_of(&title) + clock.len());
        let Totals { ready, scheduled, running, dead, .. } = self.totals;
        let oldest = self.queues.iter().filter_map(|q| q.oldest_ready).min();
        let oldest = oldest.map_or_else(|| "–".into(), |t| crate::output::elapsed(t, self.now));
        let facts = format!(
            "{} ready · {} scheduled · {} running · {} dead · {:.0} done/s · oldest {oldest}",
            grouped(ready),
            grouped(scheduled),
            grouped(running),
            grouped(dead),
            self.per_second
        );
        let mut lines = vec![
            format!("{}{}{clock}", style.bold(&title), " ".repeat(gap)),
            cut(&facts, width),
            String::new(),
        ];
        let seen = workers::table(&self.workers, self.now).render(output);
        let seen: Vec<&str> = if self.workers.is_empty() { vec![] } else { seen.lines().collect() };
        // Workers get a third of the screen at most; queues what is left.
        let for_workers = if seen.is_empty() { 0 } else { seen.len().min(height / 3).max(2) + 1 };
        let room = height.saturating_sub(lines.len() + for_workers + 1);
        let table = queues::table(&self.queues, self.now).render(output);
        section(&mut lines, &table.lines().collect::<Vec<_>>(), room, "queues");
        if !seen.is_empty() {
            lines.push(String::new());
            section(&mut lines, &seen, for_workers.saturating_sub(1), "workers");
        }
        lines
    }
}

/// As many lines as fit, and how many do not.
fn section(lines: &mut Vec<String>, table: &[&str], room: usize, what: &str) {
    if table.len() <= room {
        lines.extend(table.iter().map(|l| (*l).to_owned()));
    } else {
        let shown = room.saturating_sub(1).max(1);
        lines.extend(table.iter().take(shown).map(|l| (*l).to_owned()));
        lines.push(format!("… {} more {what}", table.len() - shown));
    }
}

/// Shows until told to stop.
pub(crate) async fn run(args: TopArgs, config: &Config, output: &Output) -> Result<()> {
    let interval = Duration::from_millis(parse::span(&args.interval)?.clamp(100, 3_600_000) as u64);
    let data = data::existing(config).await?;
    let store = data.target.shown();
    if args.once || output.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let picture = Picture::take(&*data.store, None).await?;
        data.close().await?;
        let value = json!({
            "totals": facts(&picture.totals)?,
            "completed_per_s": picture.per_second,
            "queues": facts(&picture.queues)?,
            "workers": facts(&picture.workers)?,
        });
        return output.answer(&value, || picture.lines(&store, output, usize::MAX).join("\n"));
    }
    let ended = live(&*data.store, &store, interval, output).await;
    data.close().await?;
    ended
}

async fn live(store: &dyn Store, name: &str, interval: Duration, output: &Output) -> Result<()> {
    let screen = Screen::open()?;
    let mut keys = Keys::listen();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before: Option<(Instant, u64)> = None;
    let mut last: Option<Picture> = None;
    let mut trouble: Option<Failure> = None;
    loop {
        let look = tokio::select! {
            _ = tick.tick() => true,
            key = keys.pressed.recv() => match key {
                Some(Key::Redraw) => false,
                Some(Key::Quit) | None => return Ok(()),
            },
            _ = terminate.recv() => return Ok(()),
        };
        if look {
            let asked = Instant::now();
            match Picture::take(store, before.as_ref()).await {
                Ok(picture) => {
                    before = Some((asked, picture.totals.completed));
                    (last, trouble) = (Some(picture), None);
                }
                // It may come back; until then the last picture stays.
                Err(failure) => trouble = Some(failure),
            }
        }
        let (width, height) = terminal::size().map_or((80, 24), |(w, h)| (usize::from(w), usize::from(h)));
        let output = Output { width: Some(width), ..*output };
        let mut lines =
            last.as_ref().map(|p| p.lines(name, &output, height.saturating_sub(1))).unwrap_or_default();
        let foot = match &trouble {
            Some(failure) => {
                output.style.red(&cut(&format!("{}: {}", failure.code(), failure.message()), width))
            }
            None => output.style.dim("q quits"),
        };
        lines.truncate(height.saturating_sub(1));
        lines.push(foot);
        screen.draw(&lines)?;
    }
}

/// The whole terminal, given back as it was.
struct Screen;

impl Screen {
    fn open() -> Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    #[expect(clippy::unused_self, reason = "there is something to draw on only while this lives")]
    fn draw(&self, lines: &[String]) -> Result<()> {
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        for (n, line) in lines.iter().enumerate() {
            let end = if n + 1 == lines.len() { "" } else { "\r\n" };
            write!(out, "{line}")?;
            queue!(out, terminal::Clear(ClearType::UntilNewLine))?;
            write!(out, "{end}")?;
        }
        queue!(out, terminal::Clear(ClearType::FromCursorDown))?;
        Ok(out.flush()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nothing left to do about a terminal that is gone.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

enum Key {
    Quit,
    Redraw,
}

/// Keys, read in a thread of their own that ends with this.
struct Keys {
    pressed: mpsc::Receiver<Key>,
    over: Arc<AtomicBool>,
}

impl Keys {
    fn listen() -> Self {
        let (send, pressed) = mpsc::channel(16);
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        tokio::task::spawn_blocking(move || {
            while !ended.load(Ordering::Relaxed) {
                let key = match event::poll(KEYS)
                    .and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) })
                {
                    Ok(None) => continue,
                    Ok(Some(event)) => meaning(&event),
                    // The terminal is gone.
                    Err(_) => Some(Key::Quit),
                };
                if let Some(key) = key
                    && send.blocking_send(key).is_err()
                {
                    return;
                }
            }
        });
        Self { pressed, over }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Key::Quit),
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            _ => None,
        },
        Event::Resize(..) => Some(Key::Redraw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_fits_and_says_what_is_left_out() {
        let table = ["HEAD", "a", "b", "c", "d"];
        let mut lines = vec![];
        section(&mut lines, &table, 5, "queues");
        assert_eq!(lines, table);
        let mut lines = vec![];
        section(&mut lines, &table, 3, "queues");
        assert_eq!(lines, ["HEAD", "a", "… 3 more queues"]);
    }
}
