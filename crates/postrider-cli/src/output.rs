//! Tables for people, JSON for programs, times for both.

use std::io::IsTerminal;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use postrider_sinks::setting::duration;
pub use postrider_sinks::wire::rfc3339 as time;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::args::Colour;
use crate::exit::Failure;

/// Whether what is written there gets colours.
pub fn is_coloured(colour: Colour, to: &impl IsTerminal) -> bool {
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => to.is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
}

/// An empty table with its headings.
pub fn table(headings: &[&str], coloured: bool) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(headings.to_vec());
    match coloured {
        true => table.enforce_styling(),
        false => table.force_no_tty(),
    };
    table
}

/// Text at the left edge.
pub fn cell(text: &str) -> Cell {
    Cell::new(text)
}

/// A number at the right edge.
pub fn number(value: impl ToString) -> Cell {
    Cell::new(value.to_string()).set_alignment(CellAlignment::Right)
}

/// Text in a colour.
pub fn marked(text: &str, colour: Color) -> Cell {
    Cell::new(text).fg(colour)
}

/// Text that came from a message or a server: what would control the terminal, or the direction of the text, must not
/// reach it.
pub fn plain(text: &str) -> String {
    let steers = |c: char| matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    text.chars().map(|c| if c.is_control() || steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::failed(error.to_string()))?;
    line(&text)
}

/// Prints a line. A reader that went away is not our failure, but there is nothing left to do.
pub fn line(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// A time to the second.
pub fn short_time(micros: i64) -> String {
    format!("{:.19}Z", time(micros))
}

/// Reads `2h` (ago) or an RFC 3339 time, as microseconds since 1970.
pub fn parse_time(text: &str) -> Result<i64, String> {
    if let Ok(ago) = duration::parse(text) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return Ok(i64::try_from(now.saturating_sub(ago).as_micros()).unwrap_or(i64::MAX));
    }
    let wrong = || format!("{text:?} is no time; write how long ago, such as 2h, or 2026-01-31T12:00:00Z");
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wrong())?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000).map_err(|_| wrong())
}

/// How long something has lasted, in one or two units.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A bar on a terminal, and nothing elsewhere.
pub fn progress(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} ({per_sec}, {eta} left)") {
        bar.set_style(style);
    }
    bar.with_message(what)
}

/// `1 message`, `2 messages`.
pub fn messages(count: u64) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        assert_eq!(parse_time("1970-01-01T00:00:01Z"), Ok(1_000_000));
        assert_eq!(parse_time("9999-12-31T23:59:59Z"), Ok(253_402_300_799_000_000));
        assert_eq!(parse_time("1970-01-01T02:00:00+02:00"), Ok(0));
        assert_eq!(time(1_000_001), "1970-01-01T00:00:01.000001Z");
        assert_eq!(short_time(1_000_001), "1970-01-01T00:00:01Z");
        assert!(parse_time("yesterday").is_err());
        let hour_ago = parse_time("1h").expect("an hour ago");
        let two_hours_ago = parse_time("2h").expect("two hours ago");
        assert!((3_599_000_000..3_601_000_000).contains(&(hour_ago - two_hours_ago)));
    }

    #[test]
    fn a_span_is_short() {
        for (seconds, text) in [(0, "0 ms"), (59, "59 s"), (61, "1 m 1 s"), (7_260, "2 h 1 m"), (90_000, "1 d 1 h")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_message_cannot_write_to_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(plain("\u{9b}2J\u{202e}x\u{2066}é"), "\u{fffd}2J\u{fffd}x\u{fffd}é");
    }
}
