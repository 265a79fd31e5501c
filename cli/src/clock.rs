//! The wall clock as text.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time in UTC with milliseconds, as RFC 3339 has it: `2026-11-26T18:41:17.250Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The year, month and day that is `days` days after 1970-01-01. The years begin in March, so that
/// a leap day is the last day of its year. Hinnant, "chrono-compatible low-level date algorithms".
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_command_date() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.250Z"),
            (951_827_696, "2000-02-29T12:34:56.250Z"),
            (1_785_542_399, "2026-07-31T23:59:59.250Z"),
            (4_107_542_400, "2100-03-01T00:00:00.250Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(250);
            assert_eq!(rfc3339(time), text);
        }
    }
}
