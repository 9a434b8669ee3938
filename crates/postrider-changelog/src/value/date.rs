//! Times as JavaScript has them. Its calendar goes further than the `time` crate's, so it is reckoned here.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use super::InvalidDate;

/// The furthest time from 1970 that JavaScript knows, in milliseconds, both ways.
const FURTHEST: i64 = 8_640_000_000_000_000;
const MILLIS_PER_DAY: i64 = 86_400_000;
/// Days from 1 March of year 0 to 1 January 1970, in the Gregorian calendar. Years that begin in March have their leap day at
/// their end, which makes them easy to count.
const DAYS_TO_1970: i64 = 719_468;
/// Days of 400 years, after which the calendar repeats itself.
const DAYS_OF_ERA: i64 = 146_097;

/// A time in milliseconds since 1970, as finely and as far as JavaScript knows it: 100 million days both ways.
///
/// Its text is that of JavaScript's `toISOString`: `2024-02-29T12:00:00.000Z`, and `+012024-…` or `-000001-…` for years that do
/// not have four digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(i64);

impl Date {
    /// The earliest one.
    pub const MIN: Self = Self(-FURTHEST);
    /// The latest one.
    pub const MAX: Self = Self(FURTHEST);

    /// From milliseconds since 1970, if JavaScript has such a time.
    pub const fn from_millis(millis: i64) -> Option<Self> {
        if -FURTHEST <= millis && millis <= FURTHEST { Some(Self(millis)) } else { None }
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

/// Cut to whole milliseconds, towards the past. What lies outside of JavaScript's range becomes its end.
impl From<SystemTime> for Date {
    fn from(time: SystemTime) -> Self {
        let millis = |nanos: u128| i64::try_from(nanos).unwrap_or(FURTHEST).min(FURTHEST);
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Self(millis(after.as_millis())),
            Err(before) => Self(-millis(before.duration().as_nanos().div_ceil(1_000_000))),
        }
    }
}

impl From<Date> for SystemTime {
    fn from(date: Date) -> Self {
        let distance = Duration::from_millis(date.0.unsigned_abs());
        if date.0 < 0 { Self::UNIX_EPOCH - distance } else { Self::UNIX_EPOCH + distance }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = calendar(self.0.div_euclid(MILLIS_PER_DAY));
        let millis = self.0.rem_euclid(MILLIS_PER_DAY);
        match year {
            0..=9999 => write!(f, "{year:04}")?,
            _ => write!(f, "{year:+07}")?,
        }
        let (hour, minute, second) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1_000 % 60);
        write!(f, "-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", millis % 1_000)
    }
}

impl FromStr for Date {
    type Err = InvalidDate;

    /// Reads what `toISOString` writes, and nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidDate> {
        let date = read(text).and_then(Self::from_millis).ok_or(InvalidDate)?;
        // Days like 30 February have been reckoned into the next month, and years may have more digits than they need.
        if date.to_string() == text { Ok(date) } else { Err(InvalidDate) }
    }
}

fn read(text: &str) -> Option<i64> {
    let digits = match text.as_bytes().first()? {
        b'+' | b'-' => 7,
        _ => 4,
    };
    let (year, rest) = text.split_at_checked(digits)?;
    let part = |from: usize, to: usize| rest.get(from..to)?.parse::<i64>().ok();
    let days = day(year.parse().ok()?, part(1, 3)?, part(4, 6)?);
    Some(
        days * MILLIS_PER_DAY
            + part(7, 9)? * 3_600_000
            + part(10, 12)? * 60_000
            + part(13, 15)? * 1_000
            + part(16, 19)?,
    )
}

/// Days since 1970 of a day of the calendar.
fn day(year: i64, month: i64, day: i64) -> i64 {
    // Counted from March, months of 31 and 30 days alternate in groups of five, with 153 days each.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * DAYS_OF_ERA + year * 365 + year / 4 - year / 100 + day_of_year - DAYS_TO_1970
}

/// The day of the calendar so many days since 1970: year, month, day.
fn calendar(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let (era, days) = (days.div_euclid(DAYS_OF_ERA), days.rem_euclid(DAYS_OF_ERA));
    // Without the leap days that came before it, each day falls into its year by division: one in 4 years, none in most
    // centuries, one at the end of the era.
    let year = (days - days / 1_460 + days / 36_524 - days / 146_096) / 365;
    let day_of_year = days - (year * 365 + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (era * 400 + year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(millis: i64) -> String {
        Date::from_millis(millis).expect("in range").to_string()
    }

    #[test]
    fn a_time_is_written_as_javascript_writes_it() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(text(1_709_207_999_123), "2024-02-29T11:59:59.123Z");
        assert_eq!(text(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
        assert_eq!(text(253_402_300_800_000), "+010000-01-01T00:00:00.000Z");
        assert_eq!(text(-62_167_219_200_000), "0000-01-01T00:00:00.000Z");
        assert_eq!(text(-62_167_219_200_001), "-000001-12-31T23:59:59.999Z");
        assert_eq!(Date::MAX.to_string(), "+275760-09-13T00:00:00.000Z");
        assert_eq!(Date::MIN.to_string(), "-271821-04-20T00:00:00.000Z");
    }

    #[test]
    fn what_javascript_has_no_time_for_is_refused() {
        assert_eq!(Date::from_millis(FURTHEST), Some(Date::MAX));
        assert_eq!(Date::from_millis(FURTHEST + 1), None);
        assert_eq!(Date::from_millis(-FURTHEST - 1), None);
        for text in [
            "",
            "2024",
            "2023-02-29T00:00:00.000Z",
            "2024-13-01T00:00:00.000Z",
            "2024-00-01T00:00:00.000Z",
            "2024-01-01T24:00:00.000Z",
            "2024-01-01T00:00:00Z",
            "2024-01-01T00:00:00.000",
            "2024-01-01T00:00:00.000+00:00",
            "2024-01-01 00:00:00.000Z",
            "+002024-01-01T00:00:00.000Z",
            "-000000-01-01T00:00:00.000Z",
            "+275760-09-13T00:00:00.001Z",
            "2024-01-01T00:00:00.+10Z",
            "2024-01-01T00:00:00.000Zé",
            "éééé-01-01T00:00:00.000Z",
        ] {
            assert_eq!(text.parse::<Date>(), Err(InvalidDate), "{text}");
        }
    }

    #[test]
    fn a_time_of_the_system_is_cut_towards_the_past() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(Date::from(epoch + Duration::from_nanos(1_999_999)).millis(), 1);
        assert_eq!(Date::from(epoch - Duration::from_nanos(1)).millis(), -1);
        assert_eq!(Date::from(epoch - Duration::from_nanos(1_000_001)).millis(), -2);
        assert_eq!(Date::from(epoch - Duration::from_millis(5)).millis(), -5);
        assert_eq!(Date::from(epoch + Duration::from_secs(1 << 60)), Date::MAX);
        assert_eq!(Date::from(epoch - Duration::from_secs(1 << 60)), Date::MIN);
    }

    #[test]
    fn the_calendar_is_that_of_the_time_crate_on_every_day_of_three_eras() {
        let (first, last) = (day(-401, 1, 1), day(800, 12, 31));
        let mut other = time::Date::from_ordinal_date(-401, 1).expect("a day");
        for days in first..=last {
            let expected = (i64::from(other.year()), i64::from(u8::from(other.month())), i64::from(other.day()));
            assert_eq!(calendar(days), expected);
            assert_eq!(day(expected.0, expected.1, expected.2), days);
            other = other.next_day().expect("a day");
        }
        assert_eq!(time::Date::from_ordinal_date(801, 1), Ok(other));
    }

    proptest! {
        #[test]
        fn every_time_is_read_as_it_was_written(millis in -FURTHEST..=FURTHEST) {
            let date = Date(millis);
            prop_assert_eq!(date.to_string().parse::<Date>(), Ok(date));
            prop_assert_eq!(Date::from(SystemTime::from(date)), date);
        }

        #[test]
        fn no_text_is_too_odd_to_be_read_as_a_time(text in "[-+0-9T:.Zé]{0,30}") {
            if let Ok(date) = text.parse::<Date>() {
                prop_assert_eq!(date.to_string(), text);
            }
        }
    }
}
