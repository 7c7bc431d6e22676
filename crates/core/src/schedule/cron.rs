//! Cron expressions: which wall-clock times they name. Zones are not known here.
//!
//! Five fields (minute, hour, day of month, month, day of week) or six with seconds first; `*`, values, ranges, steps, lists,
//! names of months and days, `L` for the last day of the month, `@daily` and its kind. As in Vixie's cron, a day matches if either
//! day field does, unless one of them begins with `*`: then both must.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time};
use serde::{Deserialize, Serialize};

/// An expression that could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCron(String);

/// How many years ahead a match is looked for. The rarest day, a 29 February on a given weekday, comes within forty.
const YEARS_AHEAD: i16 = 41;

/// Longest expression; the longest sensible one lists all minutes.
const MAX_BYTES: usize = 512;

/// One field of an expression: its name and its range.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// Names of values, from `min` on.
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Field = Field { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Field = Field {
    name: "day of week",
    min: 0,
    max: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"],
};

/// All hours of a day.
const EVERY_HOUR: u64 = (1 << 24) - 1;

/// An expression, understood. Shown and compared as it was written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    last_day: bool,
    months: u64,
    weekdays: u64,
    /// Whether both day fields must match, not either.
    both_days: bool,
}

impl Cron {
    /// Whether it runs in every hour of the day: such an expression follows the hours that pass, not the names they have.
    pub fn is_hourly(&self) -> bool {
        self.hours == EVERY_HOUR
    }

    /// The first wall-clock time after this one that the expression names. `None` if there is none for a lifetime.
    pub fn next(&self, after: DateTime) -> Option<DateTime> {
        let mut from = after.time();
        let mut date = after.date();
        let mut inclusive = false;
        let last_year = date.year().saturating_add(YEARS_AHEAD);
        while date.year() <= last_year {
            if self.names_day(date)
                && let Some(time) = self.next_time(from, inclusive)
            {
                return Some(date.to_datetime(time));
            }
            date = self.next_month(date)?;
            from = Time::midnight();
            inclusive = true;
        }
        None
    }

    /// Whether the expression names this wall-clock time.
    pub fn matches(&self, at: DateTime) -> bool {
        self.names_day(at.date())
            && has(self.hours, at.hour())
            && has(self.minutes, at.minute())
            && has(self.seconds, at.second())
    }

    /// Tomorrow, or the first day of the next month that is named at all.
    fn next_month(&self, date: Date) -> Option<Date> {
        let tomorrow = date.tomorrow().ok()?;
        if has(self.months, tomorrow.month()) {
            return Some(tomorrow);
        }
        let (mut year, mut month) = (tomorrow.year(), tomorrow.month());
        while !has(self.months, month) {
            (year, month) = if month == 12 { (year.checked_add(1)?, 1) } else { (year, month + 1) };
        }
        Date::new(year, month, 1).ok()
    }

    fn names_day(&self, date: Date) -> bool {
        if !has(self.months, date.month()) {
            return false;
        }
        let of_month = has(self.days, date.day()) || (self.last_day && date.day() == date.days_in_month());
        let of_week = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.both_days { of_month && of_week } else { of_month || of_week }
    }

    /// The first time of a day after this one, or this one itself.
    fn next_time(&self, from: Time, inclusive: bool) -> Option<Time> {
        let (hour, minute) = (from.hour(), from.minute());
        let second = if inclusive { from.second() } else { from.second() + 1 };
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_least(self.seconds, second)
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = at_least(self.minutes, minute + 1) {
                return Time::new(hour, minute, at_least(self.seconds, 0)?, 0).ok();
            }
        }
        let hour = at_least(self.hours, hour + 1)?;
        Time::new(hour, at_least(self.minutes, 0)?, at_least(self.seconds, 0)?, 0).ok()
    }
}

fn has(set: u64, value: i8) -> bool {
    set & (1 << value) != 0
}

/// The smallest member that is at least this.
fn at_least(set: u64, value: i8) -> Option<i8> {
    let rest = set >> value << value;
    (rest != 0).then(|| rest.trailing_zeros() as i8)
}

impl FromStr for Cron {
    type Err = InvalidCron;

    fn from_str(text: &str) -> Result<Self, InvalidCron> {
        let text = text.trim();
        if text.len() > MAX_BYTES {
            return Err(InvalidCron(format!("a cron expression has at most {MAX_BYTES} bytes")));
        }
        let expanded = expand(text)?;
        let fields: Vec<&str> = expanded.split_ascii_whitespace().collect();
        let [second, minute, hour, day, month, weekday] = match fields[..] {
            [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
            [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
            _ => {
                let why = format!(
                    "{text:?} has {} fields; five are expected (minute, hour, day of month, month, day of week), or six with \
                     seconds first",
                    fields.len()
                );
                return Err(InvalidCron(why));
            }
        };
        let (days, last_day) = read_days(day)?;
        let mut weekdays = read(&WEEKDAY, question(weekday))?;
        // Sunday has two numbers.
        if weekdays & (1 << 7) != 0 {
            weekdays = (weekdays | 1) & !(1 << 7);
        }
        let starred = |field: &str| field.starts_with(['*', '?']);
        let cron = Self {
            text: text.to_owned(),
            seconds: read(&SECOND, second)?,
            minutes: read(&MINUTE, minute)?,
            hours: read(&HOUR, hour)?,
            days,
            last_day,
            months: read(&MONTH, month)?,
            weekdays,
            both_days: starred(day) || starred(weekday),
        };
        if cron.next(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)).is_none() {
            return Err(InvalidCron(format!("{text:?} never comes: no month it names has that day")));
        }
        Ok(cron)
    }
}

/// What a nickname stands for.
fn expand(text: &str) -> Result<&str, InvalidCron> {
    let Some(nickname) = text.strip_prefix('@') else { return Ok(text) };
    let word = nickname.split_ascii_whitespace().next().unwrap_or_default();
    match nickname {
        "yearly" | "annually" => Ok("0 0 1 1 *"),
        "monthly" => Ok("0 0 1 * *"),
        "weekly" => Ok("0 0 * * 0"),
        "daily" | "midnight" => Ok("0 0 * * *"),
        "hourly" => Ok("0 * * * *"),
        _ if word == "every" => {
            Err(InvalidCron("@every is not cron: name the span with `every` instead of `cron`".into()))
        }
        _ if word == "reboot" => {
            Err(InvalidCron("@reboot is not supported: a schedule belongs to no machine".into()))
        }
        _ => {
            let known = "@yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly are known";
            Err(InvalidCron(format!("{text:?}: {known}")))
        }
    }
}

/// Quartz writes `?` where the other day field decides.
fn question(field: &str) -> &str {
    if field == "?" { "*" } else { field }
}

fn read_days(field: &str) -> Result<(u64, bool), InvalidCron> {
    let (mut days, mut last) = (0, false);
    for part in question(field).split(',') {
        if part.eq_ignore_ascii_case("l") {
            last = true;
        } else {
            days |= read(&DAY, part)?;
        }
    }
    Ok((days, last))
}

/// The values that one field names.
fn read(field: &Field, text: &str) -> Result<u64, InvalidCron> {
    text.split(',').try_fold(0, |set, part| Ok(set | read_part(field, part)?))
}

fn read_part(field: &Field, part: &str) -> Result<u64, InvalidCron> {
    let refuse = |why: String| Err(InvalidCron(format!("{}: {why}", field.name)));
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    let (first, last) = if range == "*" {
        // Sunday once.
        (field.min, if field.max == 7 { 6 } else { field.max })
    } else if let Some((first, last)) = range.split_once('-') {
        let (first, mut last) = (value(field, first)?, value(field, last)?);
        // `fri-sun` ends with the Sunday that follows.
        if field.max == 7 && last == 0 && first > 0 {
            last = 7;
        }
        if first > last {
            return refuse(format!(
                "{range:?} runs backwards; write it as two, like {first}-{},{}-{last}",
                field.max, field.min
            ));
        }
        (first, last)
    } else {
        let first = value(field, range)?;
        (first, if step.is_some() { field.max } else { first })
    };
    let step = match step.map(str::parse::<u8>) {
        None => 1,
        Some(Ok(0)) => return refuse(format!("a step of 0 in {part:?}")),
        Some(Ok(step)) if step > field.max - field.min => {
            return refuse(format!(
                "a step of {step} in {part:?} is longer than the field, {} to {}",
                field.min, field.max
            ));
        }
        Some(Ok(step)) => step,
        Some(Err(_)) => return refuse(format!("the step in {part:?} is not a number")),
    };
    Ok((first..=last).step_by(usize::from(step)).fold(0, |set, value| set | 1 << value))
}

fn value(field: &Field, text: &str) -> Result<u8, InvalidCron> {
    let refuse = |why: String| Err(InvalidCron(format!("{}: {why}", field.name)));
    if let Some(at) = field.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        return Ok(field.min + at as u8);
    }
    match text.parse::<u8>() {
        Ok(value) if (field.min..=field.max).contains(&value) && text.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(value)
        }
        Ok(value) => refuse(format!("{value} is not between {} and {}", field.min, field.max)),
        Err(_) if text.is_empty() => refuse("a value is missing".into()),
        Err(_) => {
            let names = match field.names {
                [] => String::new(),
                [first, .., last] => format!(", or a name from {first} to {last}"),
                [one] => format!(", or {one}"),
            };
            let expected = format!("a number from {} to {}{names}", field.min, field.max);
            refuse(format!("{text:?} is not {expected}"))
        }
    }
}

impl TryFrom<String> for Cron {
    type Error = InvalidCron;
    fn try_from(text: String) -> Result<Self, InvalidCron> {
        text.parse()
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?})", self.text)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(cron: &str, after: &str) -> String {
        let cron: Cron = cron.parse().unwrap();
        cron.next(after.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn fields_names_ranges_steps_and_lists_are_understood() {
        for (cron, after, then) in [
            ("1 0 * * *", "2026-11-15T00:01:00", "2026-11-16T00:01:00"),
            ("*/5 * * * *", "2026-11-15T23:55:00", "2026-11-16T00:00:00"),
            ("0 0 * * 0", "2026-11-15T00:00:00", "2026-11-22T00:00:00"),
            ("0 0 * * 7", "2026-11-15T00:00:00", "2026-11-22T00:00:00"),
            ("0 2 * * SUN", "2026-11-14T12:00:00", "2026-11-15T02:00:00"),
            ("0 9-17/4 * * mon-fri", "2026-11-13T17:00:00", "2026-11-16T09:00:00"),
            ("0 9 * * fri-sun", "2026-11-14T10:00:00", "2026-11-15T09:00:00"),
            ("15,45 4 1 jan,Jul *", "2026-02-01T00:00:00", "2026-07-01T04:15:00"),
            ("30 5/15 * * * *", "2026-11-15T10:50:30", "2026-11-15T11:05:30"),
            ("*/20 * * * * *", "2026-11-15T10:59:41", "2026-11-15T11:00:00"),
            ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
            ("0 0 L * *", "2026-02-01T00:00:00", "2026-02-28T00:00:00"),
            ("0 0 ? * MON", "2026-11-15T00:00:00", "2026-11-16T00:00:00"),
            ("@daily", "2026-11-15T10:00:00", "2026-11-16T00:00:00"),
            ("@yearly", "2026-11-15T10:00:00", "2027-01-01T00:00:00"),
        ] {
            assert_eq!(next(cron, after), then, "{cron}");
        }
    }

    #[test]
    fn either_day_field_is_enough_unless_one_begins_with_a_star() {
        // A Friday, or a 13th.
        assert_eq!(next("0 0 13 * 5", "2026-11-13T00:00:00"), "2026-11-20T00:00:00");
        // Every second day, but only a Friday.
        assert_eq!(next("0 0 */2 * 5", "2026-11-13T00:00:00"), "2026-11-27T00:00:00");
    }

    #[test]
    fn an_error_names_the_field() {
        for (cron, says) in [
            ("* * * *", "4 fields"),
            ("60 * * * *", "minute: 60 is not between 0 and 59"),
            ("0 24 * * *", "hour: 24"),
            ("0 0 0 * *", "day of month: 0"),
            ("0 0 * 13 *", "month: 13"),
            ("0 0 * * 8", "day of week: 8"),
            ("0 0 * * funday", "a name from sun to sun"),
            ("0 0 * foo *", "month: \"foo\" is not a number from 1 to 12, or a name from jan to dec"),
            ("*/0 * * * *", "minute: a step of 0"),
            ("*/90 * * * *", "minute: a step of 90"),
            ("0 22-2 * * *", "hour: \"22-2\" runs backwards"),
            ("0,, * * * *", "minute: a value is missing"),
            ("+5 * * * *", "minute: 5 is not"),
            ("61 * * * * *", "second: 61"),
            ("0 0 30 2 *", "never comes"),
            ("@every 5m", "`every`"),
            ("@reboot", "@reboot is not supported"),
            ("@fortnightly", "@weekly"),
            ("", "0 fields"),
        ] {
            let error = cron.parse::<Cron>().unwrap_err().to_string();
            assert!(error.contains(says), "{cron:?}: {error}");
        }
    }
}
