//! `ControlEscaper`: JSON without raw control characters.

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Writes the value as JSON, in the layout of `formatter`.
pub(crate) fn to_json<T: Serialize>(
    value: &T,
    formatter: impl Formatter,
) -> serde_json::Result<String> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, ControlEscaper(formatter)))?;
    // The serializer writes UTF-8, so nothing is replaced.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A layout that also escapes DEL and the control characters from U+0080 to U+009F. JSON allows
/// them raw, but a terminal may execute them.
struct ControlEscaper<F>(F);

impl<F: Formatter> Formatter for ControlEscaper<F> {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, control)) = rest.char_indices().find(|(_, letter)| letter.is_control())
        {
            write!(out, "{}\\u{:04x}", &rest[..at], u32::from(control))?;
            rest = &rest[at + control.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use serde_json::ser::PrettyFormatter;

    #[test]
    fn control_characters_are_escaped_and_mean_the_same() {
        let value = json!({ "a\u{9b}": ["\u{1b}\u{7f}\u{85}é", "\u{80}\u{9f}\u{a0}"] });
        let text = to_json(&value, PrettyFormatter::new()).expect("it is JSON");
        let expected = "{\n  \"a\\u009b\": [\n    \"\\u001b\\u007f\\u0085é\",\n    \
            \"\\u0080\\u009f\u{a0}\"\n  ]\n}";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("it is JSON"), value);
    }

    #[test]
    fn the_layout_is_that_of_the_formatter() {
        let value = json!({ "a": [1, { "b": [], "c": {} }, null, "\"\n"], "d": true });
        assert_eq!(
            to_json(&value, PrettyFormatter::new()).expect("it is JSON"),
            serde_json::to_string_pretty(&value).expect("it is JSON")
        );
    }
}
