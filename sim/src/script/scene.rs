//! A World as the first lines of a script, written and read.

use super::words::{Parsed, read_ppm, read_rate, read_span, site, sites, write_rate};
use crate::limits::{self, SMALL_PARTS};
use crate::log::Scene;
use crate::transcript::span;
use elderlock::protocol::Timing;
use elderlock::wire::VERSIONS;
use goldenscript::ArgumentConsumer;
use std::time::Duration;

/// The World as it is before anything happens. All times are written: a log outlives a change of
/// the presets.
pub(super) fn write_scene(scene: &Scene) -> String {
    let nanos = |span: Duration| span.as_nanos() as u64;
    let Scene { seed, founders, joiners, council, timing, .. } = scene;
    let mut text =
        format!("world seed={seed} members={founders} joiners={joiners} council={council}");
    if scene.expect != 1 {
        text += &format!(" expect={}", scene.expect);
    }
    for (said, word) in [
        (!scene.bounded, " clocks=unbounded"),
        (!scene.hints, " hints=none"),
        (scene.trust_refused, " refused=trusted"),
        (scene.keyless, " key=none"),
        (scene.gossip, " gossip=real"),
        (scene.durable, " votes=durable"),
        (scene.lineages, " lineages=several"),
        (scene.asleep, " asleep=yes"),
        (scene.detects, " circles=told"),
        (scene.keeps, " locks=kept"),
        (scene.keeps_shares, " shares=kept"),
        (scene.follows, " load=followed"),
    ] {
        text += if said { word } else { "" };
    }
    text += &format!(
        "\ntiming member-lease={} elder-lease={} beat={} retry={} stagger={} answer={} \
         clock-error={}ppm\n",
        span(nanos(timing.member_lease)),
        span(nanos(timing.elder_lease)),
        span(nanos(timing.beat)),
        span(nanos(timing.retry)),
        span(nanos(timing.stagger)),
        span(nanos(timing.answer)),
        timing.clock_error_ppm
    );
    if scene.limits != SMALL_PARTS {
        text += &format!("limits{}\n", limits::write(scene.limits));
    }
    let shared = scene.hosts.iter().enumerate().any(|(site, host)| site != *host as usize);
    if shared {
        text +=
            &scene.hosts.iter().fold("hosts".to_string(), |text, host| text + &format!(" {host}"));
        text += "\n";
    }
    if !scene.sessions.is_empty() {
        text += &scene
            .sessions
            .iter()
            .fold("sessions".into(), |text: String, site| text + &format!(" m{site}"));
        text += "\n";
    }
    if !scene.older.is_empty() {
        let sites = scene.older.iter().map(|site| format!(" m{site}"));
        text += &format!("older{}", sites.collect::<String>());
        if scene.older_highest != VERSIONS.lowest {
            text += &format!(" highest={}", scene.older_highest);
        }
        text += "\n";
    }
    if !scene.forcible.is_empty() {
        let sites = scene.forcible.iter().map(|site| format!(" m{site}"));
        text += &format!("forcible{}\n", sites.collect::<String>());
    }
    for (site, ppm) in scene.clocks.iter().enumerate().filter(|(_, ppm)| **ppm != 0) {
        text += &format!("clock m{site}{}\n", write_rate(*ppm));
    }
    text
}

/// Reads a line of the scene. False: the line is not part of a scene.
pub(super) fn read_scene(
    scene: &mut Scene,
    name: &str,
    args: &mut ArgumentConsumer<'_>,
) -> Parsed<bool> {
    match name {
        "world" => {
            while let Some((key, value)) = args.next_key() {
                match (key, value) {
                    ("seed", value) => scene.seed = value.parse()?,
                    ("members", value) => scene.founders = value.parse()?,
                    ("joiners", value) => scene.joiners = value.parse()?,
                    ("council", value) => scene.council = value.parse()?,
                    ("expect", value) => scene.expect = value.parse()?,
                    ("clocks", "unbounded") => scene.bounded = false,
                    ("hints", "none") => scene.hints = false,
                    ("refused", "trusted") => scene.trust_refused = true,
                    ("key", "none") => scene.keyless = true,
                    ("gossip", "real") => scene.gossip = true,
                    ("votes", "durable") => scene.durable = true,
                    ("lineages", "several") => scene.lineages = true,
                    ("asleep", "yes") => scene.asleep = true,
                    ("circles", "told") => scene.detects = true,
                    ("locks", "kept") => scene.keeps = true,
                    ("shares", "kept") => scene.keeps_shares = true,
                    ("load", "followed") => scene.follows = true,
                    _ => return Err(format!("no world has {key}={value}").into()),
                }
            }
        }
        "timing" => {
            match args.next_pos() {
                Some("fast") => scene.timing = Timing::fast(),
                Some("lan") => scene.timing = Timing::lan(),
                Some("wan") => scene.timing = Timing::wan(),
                Some(name) => return Err(format!("no timing is called {name}").into()),
                None => {}
            }
            let timing = &mut scene.timing;
            while let Some((key, value)) = args.next_key() {
                match key {
                    "member-lease" => timing.member_lease = read_span(value)?,
                    "elder-lease" => timing.elder_lease = read_span(value)?,
                    "beat" => timing.beat = read_span(value)?,
                    "retry" => timing.retry = read_span(value)?,
                    "stagger" => timing.stagger = read_span(value)?,
                    "answer" => timing.answer = read_span(value)?,
                    "clock-error" => timing.clock_error_ppm = read_ppm(value)?,
                    _ => return Err(format!("no timing has a {key:?}").into()),
                }
            }
            timing.check()?;
        }
        "limits" => {
            while let Some((key, value)) = args.next_key() {
                limits::read(&mut scene.limits, key, value)?;
            }
        }
        "hosts" => {
            scene.hosts =
                std::iter::from_fn(|| args.next_pos()).map(str::parse).collect::<Result<_, _>>()?
        }
        "sessions" => scene.sessions = sites(args)?,
        "older" => {
            scene.older = sites(args)?;
            while let Some((key, value)) = args.next_key() {
                scene.older_highest = match (key, value.parse()?) {
                    ("highest", highest) if VERSIONS.contains(highest) => highest,
                    _ => return Err(format!("no release speaks {key}={value}").into()),
                }
            }
        }
        "forcible" => scene.forcible = sites(args)?,
        "clock" => {
            let site = site(args)?;
            scene.clocks.resize(scene.clocks.len().max(site + 1), 0);
            scene.clocks[site] = read_rate(args)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
