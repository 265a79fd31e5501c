//! Durations as operators write them.

use std::time::Duration;

/// A number with its unit; seconds without one.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let millis = match &text[number.len()..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        _ => return Err("append ms, s or m to the number".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "give a whole number followed by ms, s or m".to_owned())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| "is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_number_with_its_unit() {
        for (text, millis) in
            [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("7", 7_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
        }
        for wrong in
            ["", "s", "5h", "-1s", "1.5s", "5 s", "99999999999999999999s", "9999999999999999999m"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
