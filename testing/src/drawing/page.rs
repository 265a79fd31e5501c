//! A self-contained page of HTML: no network, no build step.

use super::diagram::duration;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The length beyond which a text shows only its beginning at first, in characters.
const LONG: usize = 220;

/// The patterns that all diagrams refer to.
const PATTERNS: &str = r#"<svg width="0" height="0" style="position:absolute" aria-hidden="true">
<defs>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse"
  patternTransform="rotate(45)"><rect width="7" height="7" fill="var(--card)"/>
  <path d="M0 0V7" stroke="var(--soft)" stroke-width="3"/></pattern>
<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">
  <rect width="6" height="6" fill="var(--alive)"/>
  <circle cx="3" cy="3" r="1" fill="var(--soft)"/></pattern>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
  orient="auto"><path d="M0 1L8 4L0 7z" fill="var(--ink)"/></marker>
</defs></svg>"#;

/// Text as HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page around this body.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{PATTERNS}\n\
         <div class=\"top\"><span>elderlock, simulated</span><button id=\"theme\" \
         type=\"button\">light / dark</button></div>\n\
         {body}\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        escape(title)
    )
}

/// The verdict of a run that held or that is broken.
pub fn verdict(out: &mut String, held: bool, words: &str, more: &str) {
    let (class, first) = if held { ("good", "Held:") } else { ("bad", "Broken:") };
    headline(out, class, first, words);
    if more.chars().count() > LONG {
        let short: String = more.chars().take(LONG).collect();
        let (short, more) = (escape(&short), escape(more));
        let _ = write!(
            out,
            "<details><summary>{short}…</summary><p class=\"soft\">{more}</p></details>"
        );
    } else if !more.is_empty() {
        let _ = write!(out, "<p class=\"soft\">{}</p>", escape(more));
    }
}

/// The first line, whose first word is coloured: `good` or `bad`.
pub fn headline(out: &mut String, class: &str, first: &str, words: &str) {
    let _ = write!(out, "<h1><span class=\"{class}\">{first}</span> {}</h1>", escape(words));
}

/// Figures with their captions.
pub fn facts(out: &mut String, facts: &[(String, &str)]) {
    out.push_str("<ul class=\"facts\">");
    for (figure, what) in facts {
        let _ = write!(out, "<li><b>{}</b><span>{}</span></li>", escape(figure), escape(what));
    }
    out.push_str("</ul>");
}

/// A command to copy.
pub fn command(out: &mut String, command: &str) {
    let words = escape(command);
    let _ = write!(
        out,
        "<div class=\"command\"><span>{words}</span><button class=\"copy\" \
         type=\"button\">copy</button></div>"
    );
}

/// A table. A column name with a leading `#` marks numbers, with a leading `=` commands.
pub fn table(out: &mut String, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let class = |name: &str| match name.as_bytes().first() {
        Some(b'#') => " class=\"number\"",
        Some(b'=') => " class=\"code\"",
        _ => "",
    };
    out.push_str("<div class=\"wide\"><table><tr>");
    for name in head {
        let _ =
            write!(out, "<th{}>{}</th>", class(name), escape(name.trim_start_matches(['#', '='])));
    }
    out.push_str("</tr>");
    for row in rows {
        out.push_str("<tr>");
        for (name, cell) in head.iter().zip(&row) {
            let _ = write!(out, "<td{}>{}</td>", class(name), escape(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
}

/// The amounts as bars.
pub fn bars(out: &mut String, rows: &[(String, u64)]) {
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    out.push_str("<table class=\"bars\">");
    for (name, count) in rows {
        let width = (count * 1_000).div_ceil(most);
        let _ = write!(
            out,
            "<tr><td class=\"number\">{}</td><td class=\"bar\"><i \
             style=\"width:{}.{}%\"></i></td><td class=\"number\">{}</td></tr>",
            escape(name),
            width / 10,
            width % 10,
            grouped(*count)
        );
    }
    out.push_str("</table>");
}

/// A number for people: 1,234,567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A span for people, with a useful number of digits.
pub fn about(nanos: u64) -> String {
    match nanos {
        10_000_000_000.. => format!("{:.1} s", nanos as f64 / 1e9),
        _ => duration(nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_text_is_no_markup() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
