//! `strftime`, for the dates that templates put into system prompts.

use std::fmt::Write;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAY_SECONDS: i64 = 86_400;

/// `format` for the moment `seconds` after 1970-01-01 00:00 on the wall's clock, in the C locale. Unknown directives
/// stay as they are, as glibc leaves them.
pub(super) fn strftime(format: &str, seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil_from_days(days);
    let weekday = (days + 4).rem_euclid(7); // 1970-01-01 was a Thursday.
    let year_day = days - days_before(year, 1, 1) + 1;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let hour_12 = (hour + 11) % 12 + 1;
    let (day_name, month_name) = (DAYS[weekday as usize], MONTHS[month as usize - 1]);

    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let before = rest.clone();
        let mut directive = rest.next();
        // `%-d`: without leading zeros.
        let is_bare = directive == Some('-');
        if is_bare {
            directive = rest.next();
        }
        let (value, width) = match directive {
            Some('Y') => (year, 4),
            Some('y') => (year.rem_euclid(100), 2),
            Some('m') => (month, 2),
            Some('d') => (day, 2),
            Some('H') => (hour, 2),
            Some('I') => (hour_12, 2),
            Some('M') => (minute, 2),
            Some('S') => (second, 2),
            Some('f') => (0, 6),
            Some('j') => (year_day, 3),
            Some('w') => (weekday, 1),
            Some('u') => ((weekday + 6) % 7 + 1, 1),
            Some('s') => (seconds, 1),
            text => {
                match text.filter(|_| !is_bare) {
                    Some('a') => out.push_str(&day_name[..3]),
                    Some('A') => out.push_str(day_name),
                    Some('b' | 'h') => out.push_str(&month_name[..3]),
                    Some('B') => out.push_str(month_name),
                    Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
                    Some('e') => write_number(&mut out, format_args!("{day:2}")),
                    Some('F') => out.push_str(&strftime("%Y-%m-%d", seconds)),
                    Some('T' | 'X') => out.push_str(&strftime("%H:%M:%S", seconds)),
                    Some('R') => out.push_str(&strftime("%H:%M", seconds)),
                    Some('D' | 'x') => out.push_str(&strftime("%m/%d/%y", seconds)),
                    Some('c') => out.push_str(&strftime("%a %b %e %H:%M:%S %Y", seconds)),
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('%') => out.push('%'),
                    // Time zones are empty for a moment without one, as in Python.
                    Some('z' | 'Z') => {}
                    _ => {
                        out.push('%');
                        rest = before;
                    }
                }
                continue;
            }
        };
        let width = if is_bare { 1 } else { width };
        write_number(&mut out, format_args!("{value:0width$}"));
    }
    out
}

fn write_number(out: &mut String, number: std::fmt::Arguments) {
    // Writing to a string does not fail.
    let _infallible = out.write_fmt(number);
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    // A year has 365.2425 days on average: this guess is off by one at most.
    let mut year = 1970 + days.saturating_mul(10_000).div_euclid(3_652_425);
    while days_before(year, 1, 1) > days {
        year -= 1;
    }
    while days_before(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12).rev().find(|&month| days_before(year, month, 1) <= days).unwrap_or(1);
    (year, month, days - days_before(year, month, 1) + 1)
}

/// Days from 1970-01-01 to this date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let leap_days = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let is_leap = leap_days(year) > leap_days(year - 1);
    let before_month = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
    let this_leap_day = i64::from(is_leap && month > 2);
    365 * (year - 1970) + leap_days(year - 1) - leap_days(1969) + before_month + this_leap_day + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_python_writes_them() {
        let all = "%Y-%m-%d %H:%M:%S %a %A %b %B %j %w %u %y %I %p %e|%-d %-m %-H|%d %%|%F %T %D|%q|%-|%";
        let cases = [
            (
                0,
                "1970-01-01 00:00:00 Thu Thursday Jan January 001 4 4 70 12 AM  1|1 1 0|01 %|1970-01-01 00:00:00 01/01/70|%q|%-|%",
            ),
            (
                951_827_696,
                "2000-02-29 12:34:56 Tue Tuesday Feb February 060 2 2 00 12 PM 29|29 2 12|29 %|2000-02-29 12:34:56 02/29/00|%q|%-|%",
            ),
            (
                1_735_689_599,
                "2024-12-31 23:59:59 Tue Tuesday Dec December 366 2 2 24 11 PM 31|31 12 23|31 %|2024-12-31 23:59:59 12/31/24|%q|%-|%",
            ),
            (
                -1,
                "1969-12-31 23:59:59 Wed Wednesday Dec December 365 3 3 69 11 PM 31|31 12 23|31 %|1969-12-31 23:59:59 12/31/69|%q|%-|%",
            ),
            (
                4_107_542_400,
                "2100-03-01 00:00:00 Mon Monday Mar March 060 1 1 00 12 AM  1|1 3 0|01 %|2100-03-01 00:00:00 03/01/00|%q|%-|%",
            ),
        ];
        for (seconds, expected) in cases {
            assert_eq!(strftime(all, seconds), expected);
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut last = civil_from_days(-1);
        for days in 0..146_097 {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_before(year, month, day), days);
            assert!((year, month, day) > last && day <= 31);
            last = (year, month, day);
        }
    }
}
