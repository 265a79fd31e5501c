//! The space-time diagram: time from left to right on a real axis, a lane for each member.

use super::drawn_run::{
    Breach, DrawnNote, DrawnPacket, DrawnRun, DrawnSite, HoldSpan, IS_ELDER, Span,
};
use super::labels::{self, Label, LabelPosition};
use super::page::escape;
use super::past::is_routine;
use std::fmt::Write;

/// The height of letters. All sizes are in pixels.
const TEXT: i64 = 11;
const ROW: i64 = 15;
const BAND: i64 = 16;
const THIN: i64 = 5;
/// The space after the last instant, for the labels of the last events.
const MARGIN: i64 = 190;
/// The length by which a hold that outlives the run is drawn beyond the end.
const STICKS_OUT: i64 = 14;
/// The rows of labels in the head.
const HEAD_ROWS: usize = 8;
const LABEL_ROWS: usize = 5;
/// The most characters of a label.
const LABEL: usize = 60;
/// The most rows of holds in a lane. Further holds are left out of the picture.
const HOLD_ROWS: usize = 24;
/// The most messages of a picture of all messages.
const MESSAGES: usize = 1_200;

/// The picture to draw.
#[derive(Debug)]
pub struct DiagramFrame<'a> {
    /// The run.
    pub run: &'a DrawnRun,
    /// The part of the run to draw.
    pub window: Span,
    /// The width, in pixels.
    pub width: i64,
    /// The messages to show, as indexes in `run.flights`.
    pub past: &'a [usize],
    /// Whether the messages have labels: in the picture of the last moments.
    pub named: bool,
}

/// A lane with its position in the picture. From top to bottom it has labels, the member's epochs
/// as grantor, the shown lock, the other locks, and the life line. Messages leave and arrive at the
/// life line.
struct Track<'a> {
    site: usize,
    lane: &'a DrawnSite,
    top: i64,
    labels: Vec<(String, &'static str, i64, Option<LabelPosition>)>,
    label_rows: usize,
    services: Vec<&'a str>,
    shown: Vec<Vec<&'a HoldSpan>>,
    others: Vec<Vec<&'a HoldSpan>>,
}

/// A row of holds that is being filled.
struct HoldRow<'a> {
    /// The end of the row's last hold, in pixels.
    until: i64,
    /// Whether the last hold is shorter than a pixel.
    is_short: bool,
    holds: Vec<&'a HoldSpan>,
}

impl Track<'_> {
    fn name(&self) -> String {
        self.lane.name.clone().unwrap_or_else(|| format!("m{}", self.site))
    }

    fn body(&self) -> i64 {
        self.top + 3 + self.label_rows as i64 * ROW
    }

    fn shown_at(&self) -> i64 {
        self.body() + 5 + self.services.len() as i64 * (BAND + 2)
    }

    fn others_at(&self) -> i64 {
        self.shown_at() + self.shown.len() as i64 * (BAND + 2)
    }

    /// The vertical position of the life line.
    fn base(&self) -> i64 {
        (self.others_at() + self.others.len() as i64 * (THIN + 1) + 5).max(self.body() + 14)
    }
}

/// Draws the diagram: first the names of the lanes, then the rest, as two pictures of one height.
pub fn draw(frame: &DiagramFrame<'_>) -> String {
    let focus = frame.run.focus();
    let mut head = frame.head();
    let head_rows = labels::height(&head.iter().map(|(.., spot)| *spot).collect::<Vec<_>>());
    head.retain(|(.., spot)| spot.is_some());
    let mut top = 8 + head_rows as i64 * ROW + 6;
    let mut tracks = Vec::new();
    for (site, lane) in frame.run.drawn_sites.iter().enumerate() {
        let mut track = frame.track(site, lane, focus.as_deref());
        track.top = top;
        top = track.base() + 9;
        tracks.push(track);
    }
    let height = top + 24;
    let mut out = String::new();
    let _ = write!(
        out,
        "<div class=\"scroll\"><svg class=\"names\" width=\"40\" height=\"{height}\" \
         aria-hidden=\"true\">"
    );
    for track in &tracks {
        let _ = write!(
            out,
            "<text class=\"name\" x=\"2\" y=\"{}\">{}</text>",
            track.base() + 4,
            escape(&track.name())
        );
    }
    let _ = write!(
        out,
        "</svg><svg class=\"time\" width=\"{}\" height=\"{height}\" role=\"img\" \
         aria-label=\"space-time diagram\">",
        frame.width
    );
    for track in &tracks {
        for span in &track.lane.alive {
            frame.rect(&mut out, "alive", span, track.body(), track.base() - track.body(), 1, "");
        }
    }
    frame.draw_axis(&mut out, top, 8 + head_rows as i64 * ROW);
    frame.draw_faults(&mut out, &tracks);
    for track in &tracks {
        frame.draw_lane(&mut out, track, focus.as_deref());
    }
    frame.draw_messages(&mut out, &tracks);
    frame.draw_marks(&mut out, &head, top);
    for track in &tracks {
        for (words, class, _, spot) in &track.labels {
            let Some(spot) = spot else { continue };
            let baseline = track.top + (track.label_rows - spot.row) as i64 * ROW - 3;
            write_label(&mut out, words, class, spot.left, baseline);
        }
    }
    out.push_str("</svg></div>");
    out
}

fn write_label(out: &mut String, words: &str, class: &str, x: i64, y: i64) {
    let _ =
        write!(out, "<text class=\"label {class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(words));
}

/// Writes a label into a bar. The page keeps the label in sight while the bar is.
fn write_in_bar(out: &mut String, words: &str, class: &str, bar: (i64, i64), y: i64) {
    let (x, last) = (bar.0 + 4, (bar.1 - labels::width(words, TEXT)).max(bar.0 + 4));
    let words = escape(words);
    let _ = write!(
        out,
        "<text class=\"label {class}\" x=\"{x}\" y=\"{y}\" data-last=\"{last}\">{words}</text>"
    );
}

impl<'a> DiagramFrame<'a> {
    fn plot(&self) -> i64 {
        let name = |breach: &Breach| labels::width(&breach.invariant, TEXT) + 10;
        let shown = self.run.breach.as_ref().filter(|breach| self.contains(breach.at));
        let margin = shown.map_or(30, |breach| name(breach).max(MARGIN));
        self.width - margin.min(self.width / 2)
    }

    fn x(&self, at: u64) -> i64 {
        let (from, until) = (i128::from(self.window.from), i128::from(self.window.until));
        let x = (i128::from(at) - from) * i128::from(self.plot()) / (until - from).max(1);
        x.clamp(-20, i128::from(self.plot())) as i64
    }

    /// Returns where a span is drawn: its beginning and its width, at least `least`. `None` if the
    /// span is outside of the window.
    fn part(&self, span: &Span, least: i64) -> Option<(i64, i64)> {
        if !span.meets(&self.window) {
            return None;
        }
        let from = self.x(span.from).max(-2);
        Some((from, (self.x(span.until) - from).max(least)))
    }

    /// Like [`part`](Self::part), for a span that continues after the run: it is drawn a little
    /// longer.
    fn part_going_on(&self, span: &Span, least: i64) -> Option<(i64, i64)> {
        let (x, width) = self.part(span, least)?;
        let goes_on = span.until >= self.window.until && self.run.breach.is_some();
        Some((x, width + if goes_on { STICKS_OUT } else { 0 }))
    }

    fn contains(&self, at: u64) -> bool {
        (self.window.from..=self.window.until).contains(&at)
    }

    /// The labels above all lanes: the break, the healing, the faults.
    fn head(&self) -> Vec<(String, &'static str, i64, Option<LabelPosition>)> {
        let mut wanted: Vec<(String, &'static str, i64)> = Vec::new();
        if let Some(breach) = self.run.breach.as_ref().filter(|breach| self.contains(breach.at)) {
            wanted.push((breach.invariant.replace('_', " "), "broken", self.x(breach.at) + 5));
        }
        if let Some(heal) = self.run.heal.filter(|at| self.contains(*at)) {
            wanted.push(("everything heals".to_string(), "healed", self.x(heal) + 4));
        }
        for fault in self.run.faults.iter().filter(|fault| fault.span.meets(&self.window)) {
            let words = fault.words(self.run.sites());
            // The label does not cross the line of the break.
            let at = self.x(fault.span.from).min(self.plot() - labels::width(&words, TEXT)).max(0);
            wanted.push((words, "faulty", at));
        }
        self.stacked(wanted, HEAD_ROWS)
    }

    fn stacked(
        &self,
        wanted: Vec<(String, &'static str, i64)>,
        rows: usize,
    ) -> Vec<(String, &'static str, i64, Option<LabelPosition>)> {
        let label = |(words, _, at): &(String, &str, i64)| Label {
            at: *at,
            width: labels::width(words, TEXT),
        };
        let spots = labels::stack(&wanted.iter().map(label).collect::<Vec<_>>(), self.width, rows);
        wanted
            .into_iter()
            .zip(spots)
            .map(|((words, class, at), spot)| (words, class, at, spot))
            .collect()
    }

    fn track(&self, site: usize, lane: &'a DrawnSite, focus: Option<&str>) -> Track<'a> {
        let mut services: Vec<&str> = lane
            .epochs
            .iter()
            .filter(|epoch_span| epoch_span.span.meets(&self.window))
            .map(|epoch_span| epoch_span.service.as_str())
            .collect();
        services.sort_unstable();
        services.dedup();
        let here = |hold: &&HoldSpan| {
            hold.site == site && Span { from: hold.asked, until: hold.over }.meets(&self.window)
        };
        let (shown, others): (Vec<&HoldSpan>, Vec<&HoldSpan>) = self
            .run
            .holds
            .iter()
            .filter(here)
            .partition(|hold| Some(hold.lock.as_str()) == focus && hold.got.is_some());
        let others = others
            .into_iter()
            .filter(|hold| hold.got.is_some() || Some(hold.lock.as_str()) == focus)
            .collect();
        let (shown, others) = (self.pack(shown, 2), self.pack(others, 1));
        let labels = self.lane_labels(site, lane, &shown);
        let label_rows = labels::height(&labels.iter().map(|(.., spot)| *spot).collect::<Vec<_>>());
        Track { site, lane, top: 0, labels, label_rows, services, shown, others }
    }

    /// Puts holds into rows, so that none covers another. Holds of less than a pixel share a row.
    fn pack(&self, mut holds: Vec<&'a HoldSpan>, gap: i64) -> Vec<Vec<&'a HoldSpan>> {
        holds.sort_by_key(|hold| hold.asked);
        let mut rows: Vec<HoldRow<'_>> = Vec::new();
        for hold in holds {
            let (from, end) = (self.x(hold.asked), self.x(hold.over));
            let (is_short, until) = (from == end, end.max(from + 2));
            let has_room = |row: &&mut HoldRow<'_>| {
                row.until + gap <= from || is_short && row.is_short && row.until == until
            };
            let is_full = rows.len() == HOLD_ROWS;
            match rows.iter_mut().find(has_room) {
                Some(row) => {
                    (row.until, row.is_short) = (until, is_short);
                    row.holds.push(hold);
                }
                None if !is_full => {
                    rows.push(HoldRow { until, is_short, holds: vec![hold] });
                }
                None => {}
            }
        }
        rows.into_iter().map(|row| row.holds).collect()
    }

    fn lane_labels(
        &self,
        site: usize,
        lane: &DrawnSite,
        shown: &[Vec<&HoldSpan>],
    ) -> Vec<(String, &'static str, i64, Option<LabelPosition>)> {
        let mut wanted: Vec<(u8, u64, String, &'static str)> = Vec::new();
        for hold in shown.iter().flatten() {
            let held = hold.held().filter(|span| span.meets(&self.window));
            if let Some((span, (_, width))) =
                held.and_then(|span| Some((span, self.part(&span, 2)?)))
                && width < labels::width(&hold.token, TEXT) + 4
                && (self.named || span.until >= self.run.end)
            {
                wanted.push((0, span.from, format!("token {}", hold.token), "token"));
            }
        }
        let class = |note: &DrawnNote| match note.rank {
            0 => "grave",
            _ if note.words == IS_ELDER => "elder",
            _ => "",
        };
        let note = |note: &DrawnNote| (note.rank, note.at, shortened(&note.words), class(note));
        let told = |note: &&DrawnNote| self.contains(note.at) && (note.rank <= 2 || self.named);
        wanted.extend(lane.notes.iter().filter(told).map(note));
        // The span begins before the window.
        let from = self.window.from;
        if lane.elder.iter().any(|span| span.from < from && span.until > from) {
            wanted.push((1, from, "elder".to_string(), "elder"));
        }
        if lane.paused.iter().any(|span| span.from < from && span.until > from) {
            wanted.push((1, from, "stopped".to_string(), "grave"));
        }
        if self.named || self.run.breach.as_ref().is_some_and(|breach| breach.lock.is_none()) {
            wanted.extend(lane.views.iter().filter(|note| self.contains(note.at)).map(note));
        }
        if self.named {
            for &index in self.past {
                let flight = &self.run.flights[index];
                if let Some(at) =
                    flight.arrived.filter(|at| flight.to == site && self.contains(*at))
                {
                    wanted.push((
                        4,
                        at,
                        format!("{} from m{}", flight.kind, flight.from),
                        "message",
                    ));
                }
            }
        }
        wanted.sort();
        wanted.dedup();
        // Just before the end, a label stands to the right of the end line.
        let behind = |x: i64| {
            if x > self.plot() - 36 && self.plot() < self.width {
                self.plot() + STICKS_OUT + 4
            } else {
                x
            }
        };
        let wanted = wanted
            .into_iter()
            .map(|(_, at, words, class)| (words, class, behind(self.x(at).max(0))))
            .collect();
        self.stacked(wanted, if self.named { LABEL_ROWS } else { 3 })
    }

    fn draw_faults(&self, out: &mut String, tracks: &[Track<'_>]) {
        let sites = self.run.sites();
        for fault in &self.run.faults {
            let Some((x, width)) = self.part(&fault.span, 2) else { continue };
            let words = fault.words(sites);
            let hit = |track: &&Track<'_>| fault.sites.contains(&track.site);
            for track in tracks.iter().filter(hit) {
                let (top, height) = (track.top, track.base() + 6 - track.top);
                let _ = write!(
                    out,
                    "<rect class=\"fault\" x=\"{x}\" y=\"{top}\" width=\"{width}\" \
                     height=\"{height}\"><title>{}</title></rect>",
                    escape(&words)
                );
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "where, how large, how and what it says: all of it differs each time"
    )]
    fn rect(
        &self,
        out: &mut String,
        class: &str,
        span: &Span,
        y: i64,
        height: i64,
        least: i64,
        title: &str,
    ) {
        if let Some((x, width)) = self.part_going_on(span, least) {
            let title = if title.is_empty() {
                String::new()
            } else {
                format!("<title>{}</title>", escape(title))
            };
            let _ = write!(
                out,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" \
                 height=\"{height}\">{title}</rect>"
            );
        }
    }

    fn draw_lane(&self, out: &mut String, track: &Track<'_>, focus: Option<&str>) {
        let (lane, body, base) = (track.lane, track.body(), track.base());
        for span in &lane.suspended {
            self.rect(
                out,
                "suspended",
                span,
                body,
                base - body,
                1,
                &format!("m{}: no lease", track.site),
            );
        }
        for span in &lane.paused {
            let title =
                format!("m{} is stopped for {}", track.site, duration(span.until - span.from));
            self.rect(out, "paused", span, body, base - body, 2, &title);
        }
        for span in &lane.elder {
            self.rect(out, "elder", span, body, 3, 1, &format!("m{} is the elder", track.site));
        }
        self.draw_epochs(out, track);
        for (row, holds) in track.shown.iter().enumerate() {
            for hold in holds {
                self.draw_hold(out, hold, track.shown_at() + row as i64 * (BAND + 2));
            }
        }
        for (row, holds) in track.others.iter().enumerate() {
            let y = track.others_at() + row as i64 * (THIN + 1);
            for hold in holds {
                let span = hold.held().unwrap_or(Span { from: hold.asked, until: hold.over });
                let class = if hold.got.is_some() { "other" } else { "wait" };
                let height = if hold.got.is_some() { THIN } else { 2 };
                self.rect(out, class, &span, y, height, 1, &about(hold));
            }
        }
        for span in &lane.alive {
            self.rect(out, "life", span, base, 2, 1, "");
        }
        // The lane of the test has only notes.
        let ticks = if lane.name.is_some() { &lane.notes } else { &lane.views };
        for view in ticks.iter().filter(|view| self.contains(view.at)) {
            let title = format!("{} at {}: {}", track.name(), duration(view.at), view.words);
            let (x, y) = (self.x(view.at), base - 3);
            let title = escape(&title);
            let _ = write!(
                out,
                "<rect class=\"view\" x=\"{x}\" y=\"{y}\" width=\"2\" \
                 height=\"7\"><title>{title}</title></rect>"
            );
        }
        for (index, shared) in focus.map(|lock| self.run.clashes(lock)).unwrap_or_default() {
            let hold = &self.run.holds[index];
            let row =
                track.shown.iter().position(|row| row.iter().any(|one| std::ptr::eq(*one, hold)));
            if let Some(row) = row {
                let y = track.shown_at() + row as i64 * (BAND + 2) + BAND - 3;
                self.rect(
                    out,
                    "clash",
                    &shared,
                    y,
                    4,
                    3,
                    &format!("{}, while another holds it too", about(hold)),
                );
            }
        }
    }

    fn draw_epochs(&self, out: &mut String, track: &Track<'_>) {
        for epoch_span in &track.lane.epochs {
            let Some(row) =
                track.services.iter().position(|service| *service == epoch_span.service)
            else {
                continue;
            };
            let Some((x, width)) = self.part(&epoch_span.span, 2) else { continue };
            let y = track.body() + 5 + row as i64 * (BAND + 2);
            let colour = self
                .run
                .services
                .iter()
                .position(|service| *service == epoch_span.service)
                .unwrap_or(0)
                % 3;
            let title = format!(
                "m{} grants {} in epoch {}",
                track.site, epoch_span.service, epoch_span.epoch
            );
            let asks = Span {
                from: epoch_span.span.from,
                until: epoch_span.acts.unwrap_or(epoch_span.span.until),
            };
            self.rect(
                out,
                &format!("asks s{colour}"),
                &asks,
                y,
                BAND,
                1,
                &format!("{title}; asks all members first"),
            );
            if let Some(from) = epoch_span.acts {
                self.rect(
                    out,
                    &format!("term s{colour}"),
                    &Span { from, ..epoch_span.span },
                    y,
                    BAND,
                    2,
                    &title,
                );
            }
            let visible = (width + x.min(0)).min(self.plot() - x.max(0));
            let words = [
                format!("grants {} · epoch {}", epoch_span.service, epoch_span.epoch),
                format!("{} {}", epoch_span.service, epoch_span.epoch),
            ];
            let words = words.into_iter().find(|words| labels::width(words, TEXT) + 8 <= visible);
            if let Some(words) = words {
                write_in_bar(out, &words, "epoch", (x.max(0), x.max(0) + visible), y + 12);
            }
        }
    }

    fn draw_hold(&self, out: &mut String, hold: &HoldSpan, y: i64) {
        let got = hold.got.unwrap_or(hold.over);
        self.rect(
            out,
            "wait",
            &Span { from: hold.asked, until: got },
            y + 7,
            2,
            1,
            &format!("{} waits", about(hold)),
        );
        let Some(held) = hold.held() else { return };
        let rest = Span { from: held.until, until: hold.over };
        if rest.from < rest.until {
            self.rect(
                out,
                "over",
                &rest,
                y,
                BAND,
                1,
                &format!("{}; its lease is over", about(hold)),
            );
        }
        self.rect(out, "hold", &held, y, BAND, 2, &about(hold));
        if let Some((x, width)) = self.part(&held, 2) {
            let visible = width + x.min(0);
            if labels::width(&hold.token, TEXT) + 4 <= visible {
                write_in_bar(out, &hold.token, "held", (x.max(0), x.max(0) + visible), y + 12);
            }
        }
    }

    fn draw_axis(&self, out: &mut String, bottom: i64, top: i64) {
        let span = self.window.until - self.window.from;
        let wanted = (self.plot() / 95).max(1) as u64;
        let step = step(span / wanted);
        let mut at = self.window.from.div_ceil(step) * step;
        while at <= self.window.until {
            let x = self.x(at);
            let _ = write!(out, "<path class=\"grid\" d=\"M{x} {top}V{bottom}\"/>");
            let words = seconds(at, step);
            if x + labels::width(&words, TEXT) < self.width {
                write_label(out, &words, "tick", x + 3, bottom + 14);
            }
            at += step;
        }
    }

    fn draw_messages(&self, out: &mut String, tracks: &[Track<'_>]) {
        let inside = |flight: &DrawnPacket| {
            Span { from: flight.sent, until: flight.arrived.unwrap_or(flight.sent) }
                .meets(&self.window)
        };
        let known = |flight: &&DrawnPacket| flight.to < tracks.len() && flight.from < tracks.len();
        out.push_str("<g class=\"all\">");
        let mut rest: Vec<&DrawnPacket> = self
            .run
            .flights
            .iter()
            .filter(known)
            .filter(|flight| inside(flight) && self.named)
            .collect();
        rest.sort_by_key(|flight| (is_routine(&flight.kind), std::cmp::Reverse(flight.sent)));
        for flight in rest.into_iter().take(MESSAGES) {
            self.draw_flight(out, flight, tracks);
        }
        out.push_str("</g><g class=\"past\">");
        for &index in self.past {
            let flight = &self.run.flights[index];
            if inside(flight) && known(&flight) {
                self.draw_flight(out, flight, tracks);
            }
        }
        out.push_str("</g>");
    }

    fn draw_flight(&self, out: &mut String, flight: &DrawnPacket, tracks: &[Track<'_>]) {
        let (from, to) = (tracks[flight.from].base(), tracks[flight.to].base());
        let (down, x) = (if to > from { 1 } else { -1 }, self.x(flight.sent));
        let name = format!(
            "{} from m{} to m{}, sent at {}",
            flight.kind,
            flight.from,
            flight.to,
            duration(flight.sent)
        );
        let way = match (flight.arrived, &flight.lost) {
            (Some(at), _) => {
                let (title, end) =
                    (format!("{name}, {} under way", duration(at - flight.sent)), self.x(at));
                (
                    format!(
                        "class=\"arrow\" d=\"M{x} {from}L{end} {}\" marker-end=\"url(#head)\"",
                        to - 3 * down
                    ),
                    title,
                )
            }
            (None, Some(why)) => {
                let end = from + 16 * down;
                let cross = "m-3 -3l6 6m0 -6l-6 6";
                (format!("class=\"stub\" d=\"M{x} {from}V{end}{cross}\""), format!("{name}: {why}"))
            }
            (None, None) => {
                let end = self.x(self.run.end);
                (
                    format!("class=\"arrow open\" d=\"M{x} {from}L{end} {}\"", (from + to) / 2),
                    format!("{name}, not there yet"),
                )
            }
        };
        let _ = write!(out, "<path {}><title>{}</title></path>", way.0, escape(&way.1));
    }

    /// Draws the lines that go through all lanes, and the labels of the head.
    fn draw_marks(
        &self,
        out: &mut String,
        head: &[(String, &'static str, i64, Option<LabelPosition>)],
        bottom: i64,
    ) {
        for (words, class, at, spot) in head {
            let Some(spot) = spot else { continue };
            let y = 8 + spot.row as i64 * ROW + 11;
            let x = match *class {
                "broken" => at - 5,
                "healed" => at - 4,
                _ => *at,
            };
            match *class {
                "faulty" => {}
                _ => {
                    let _ = write!(out, "<path class=\"{class}\" d=\"M{x} {}V{bottom}\"/>", y - 10);
                }
            }
            write_label(out, words, class, spot.left, y);
        }
    }
}

/// The text, cut off if it is too long for a label.
fn shortened(words: &str) -> String {
    if words.chars().count() <= LABEL {
        return words.to_owned();
    }
    words.chars().take(LABEL - 1).chain(['…']).collect()
}

/// The hold as text.
fn about(hold: &HoldSpan) -> String {
    let mut words = format!("m{}, {}, asked at {}", hold.site, hold.lock, duration(hold.asked));
    if let Some(got) = hold.got {
        let _ = write!(words, ", token {} since {}", hold.token, duration(got));
    }
    if !hold.end.is_empty() {
        let _ = write!(words, ", {} at {}", hold.end, duration(hold.over));
    }
    words
}

/// The next round number of nanoseconds.
fn step(at_least: u64) -> u64 {
    let mut step = 1_000;
    loop {
        for times in [1, 2, 5] {
            if step * times >= at_least {
                return step * times;
            }
        }
        step *= 10;
    }
}

/// An instant as a label of the axis.
fn seconds(at: u64, step: u64) -> String {
    let sites = [
        (1_000_000_000, 0),
        (100_000_000, 1),
        (10_000_000, 2),
        (1_000_000, 3),
        (100_000, 4),
        (10_000, 5),
    ];
    let sites = sites.iter().find(|(unit, _)| step >= *unit).map_or(6, |(_, sites)| *sites);
    format!("{:.sites$} s", at as f64 / 1e9)
}

/// A span, or an instant, for people.
pub fn duration(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{} µs", nanos / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}
