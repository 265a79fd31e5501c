//! The words of a command: sites, calls, times, spans, rates.

use crate::network::{MS, SECOND};
use goldenscript::ArgumentConsumer;
use std::error::Error;
use std::time::Duration;

pub(super) type Parsed<T> = Result<T, Box<dyn Error>>;

pub(super) fn word<'a>(args: &mut ArgumentConsumer<'a>, what: &str) -> Parsed<&'a str> {
    args.next_pos().ok_or_else(|| format!("{what} is missing").into())
}

pub(super) fn number(args: &mut ArgumentConsumer<'_>) -> Parsed<usize> {
    Ok(word(args, "a number")?.parse()?)
}

/// `m1` is a site, `c1` a call.
pub(super) fn numbered(text: &str, letter: char) -> Parsed<usize> {
    let number = text.strip_prefix(letter).and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{text:?} is not like {letter}1").into())
}

pub(super) fn site(args: &mut ArgumentConsumer<'_>) -> Parsed<usize> {
    numbered(word(args, "a site")?, 'm')
}

pub(super) fn sites(args: &mut ArgumentConsumer<'_>) -> Parsed<Vec<usize>> {
    std::iter::from_fn(|| args.next_pos()).map(|text| numbered(text, 'm')).collect()
}

pub(super) fn call(args: &mut ArgumentConsumer<'_>) -> Parsed<usize> {
    numbered(word(args, "a call")?, 'c')
}

/// True time in seconds.
pub(super) fn time(nanos: u64) -> String {
    format!("{}.{:09}", nanos / SECOND, nanos % SECOND)
}

pub(super) fn read_time(text: &str) -> Parsed<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 9 {
        return Err(format!("{text:?} is finer than nanoseconds").into());
    }
    Ok(whole.parse::<u64>()? * SECOND + format!("{part:0<9}").parse::<u64>()?)
}

pub(super) fn read_span(text: &str) -> Parsed<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => SECOND,
        "ms" => MS,
        "us" => 1_000,
        "ns" => 1,
        _ => return Err(format!("{text:?} is not like 20ms").into()),
    };
    Ok(Duration::from_nanos(digits.parse::<u64>()? * unit))
}

pub(super) fn read_ppm(text: &str) -> Parsed<u32> {
    Ok(text.strip_suffix("ppm").ok_or_else(|| format!("{text:?} is not like 1000ppm"))?.parse()?)
}

/// How much a clock runs fast or slow.
pub(super) fn write_rate(ppm: i32) -> String {
    let how = if ppm < 0 { "slow" } else { "fast" };
    format!(" {how}={}ppm", ppm.unsigned_abs())
}

pub(super) fn read_rate(args: &mut ArgumentConsumer<'_>) -> Parsed<i32> {
    let (how, rate) = args.next_key().ok_or("wants fast= or slow=")?;
    let rate = i32::try_from(read_ppm(rate)?)?;
    match how {
        "fast" => Ok(rate),
        "slow" => Ok(-rate),
        _ => Err(format!("no clock runs {how:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::span;

    #[test]
    fn spans_and_times_are_read_as_they_are_written() {
        for nanos in [0, 1, 999, 1_000, 1_500, 20 * MS, 1_234_567_891, 3 * SECOND] {
            assert_eq!(read_span(&span(nanos)).unwrap().as_nanos() as u64, nanos);
            assert_eq!(read_time(&time(nanos)).unwrap(), nanos);
        }
        assert_eq!(read_time("12.5").unwrap(), 12 * SECOND + SECOND / 2);
        assert!(
            read_span("20").is_err()
                && read_span("m").is_err()
                && read_time("1.0000000001").is_err()
        );
    }
}
